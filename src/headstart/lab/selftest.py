"""`headstart accept --self-test`: the gates against servers whose faults are known.

Nothing may FAIL on a sound server, and each planted defect must FAIL one of the gates it names.
"""

from __future__ import annotations

import argparse
import logging
import secrets
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from types import TracebackType

from headstart.accept import gates
from headstart.accept.calibrate import CannotJudge, calibrate
from headstart.accept.endpoint import Endpoint
from headstart.accept.fixtures import Texts, parse_tiers
from headstart.accept.http import SmallRequests
from headstart.accept.live import LiveSession
from headstart.accept.opening import open_target
from headstart.accept.report.build import Run
from headstart.accept.runner import Means, Runner
from headstart.accept.session import Options
from headstart.accept.verdict import Outcome, Verdict
from headstart.errors import ConfigError
from headstart.lab.defect import SOUND, Defect
from headstart.lab.defects import DEFECTS
from headstart.lab.server import MODELS, LabServer
from headstart.lab.stack import Shape
from headstart.options import suggestion

TIERS = "1k,2k"
AT_ONCE = 4
"""Servers judged at the same time: their models read by sleeping, so the processor is mostly free."""
PATIENCE_S = 60.0
"""Long, because a busy machine lets these servers wait for the processor; none of the defects hangs."""
SAMPLES = 2
CHURN_PROMPTS = 10

CALIBRATION = "preflight"


@dataclass(frozen=True)
class Judged:
    """What the harness said of one server. `gates`: those that ran. `took_s`: all of it."""

    defect: type[Defect]
    gates: tuple[str, ...]
    verdicts: tuple[Verdict, ...]
    took_s: float

    @property
    def failed(self) -> tuple[Verdict, ...]:
        return tuple(verdict for verdict in self.verdicts if verdict.outcome is Outcome.FAIL)

    @property
    def caught(self) -> tuple[str, ...]:
        """Gates that had to fail and did."""
        return tuple(dict.fromkeys(one.gate for one in self.failed if one.gate in self.defect.caught_by))

    @property
    def right(self) -> bool:
        """Whether the harness was right about this server: a defect caught by a gate that is there for
        it; nothing failed on a sound one, nor ended for a fault of the harness's own."""
        broken = any("the gate itself failed" in verdict.reason for verdict in self.verdicts)
        if not self.defect.caught_by:
            return not self.failed and not broken and bool(self.verdicts)
        return bool(self.caught) and not broken

    @property
    def words(self) -> str:
        """One line for a person."""
        name = f"{self.defect.name:<24}"
        if not self.defect.caught_by:
            passed = sum(verdict.outcome is Outcome.PASS for verdict in self.verdicts)
            if self.right:
                return f"{name} nothing failed, {passed} verdicts passed"
            wrong = self.failed or self.verdicts
            return (
                f"{name} WRONGLY ACCUSED by {wrong[0].gate}: {wrong[0].reason}"
                if wrong
                else f"{name} not judged"
            )
        if self.right:
            first = next(verdict for verdict in self.failed if verdict.gate in self.caught)
            return f"{name} caught by {', '.join(self.caught)}: {first.reason}"
        said = "; ".join(f"{one.gate} {one.outcome}: {one.reason}" for one in self.verdicts)
        missed = f"{name} NOT CAUGHT by {', '.join(self.defect.caught_by)}: {self.defect.title}"
        return f"{missed} ({said or 'no verdicts'})"


class Bench:
    """One lab server, its twin without a cache, and a session with them. A context manager."""

    def __init__(self, defect: type[Defect], say: Callable[[str], None] = lambda text: None) -> None:
        self.server = LabServer(defect())
        self._off = LabServer(defect(), Shape(cache=False))
        self._say = say

    def __enter__(self) -> Bench:
        self.server.start()
        self.endpoint = Endpoint(self.server.url, None, PATIENCE_S)
        self.http = SmallRequests(self.server.url, None)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.endpoint.close()
        self.http.close()
        self.server.close()
        self._off.close()

    def session(self, salt: str) -> LiveSession:
        """A calibrated session. Raises CannotJudge."""
        target = open_target(self.endpoint, self.http, server="headstart", model=MODELS[0], say=self._say)
        options = Options(
            tiers=parse_tiers(TIERS),
            model=MODELS[0],
            samples=SAMPLES,
            patience_s=PATIENCE_S,
            churn_prompts=CHURN_PROMPTS,
            other_model=MODELS[1],
        )
        session = LiveSession(
            target, options, Texts(salt), control=self.server, baseline=self._off, progress=self._say
        )
        calibrate(session)
        return session


def judge(
    defect: type[Defect], only: Sequence[str] = (), say: Callable[[str], None] = lambda text: None
) -> Judged:
    """Runs gates on `defect`'s server: `only` these, else those that must catch it, one after another
    until one does; all of them on a sound server."""
    begun_s = time.perf_counter()
    wanted = only or defect.caught_by or gates.NAMES
    there = [name for name in (wanted if defect.caught_by else gates.NAMES) if name in wanted]
    there = [name for name in there if name in gates.available()]
    salt = secrets.token_hex(4)
    tried: list[str] = []
    with Bench(defect, say) as bench:
        run = Run(url=bench.server.url, salt=salt, started=time.time())
        try:
            session = bench.session(salt)
            for name in there:
                tried.append(name)
                Runner(run, [gates.load(name)], Means(control=True)).run(session)
                if defect.caught_by and any(one.outcome is Outcome.FAIL for one in run.verdicts):
                    break
        except CannotJudge as error:
            run.verdicts.append(Verdict(CALIBRATION, Outcome.FAIL, str(error)))
    return Judged(defect, tuple(tried), tuple(run.verdicts), time.perf_counter() - begun_s)


def judge_all(
    defects: Iterable[type[Defect]],
    only: Sequence[str] = (),
    done: Callable[[Judged], None] = lambda judged: None,
) -> list[Judged]:
    """`judge` on each, several at a time, in the order given. One that the harness was wrong about is
    judged once more with nothing beside it: on a busy machine the clock tells little. `done` is told
    each when it is known."""

    def one(defect: type[Defect]) -> Judged:
        judged = judge(defect, only)
        if judged.right:
            done(judged)
        return judged

    with ThreadPoolExecutor(AT_ONCE) as pool:
        found = list(pool.map(one, defects))
    for index, judged in enumerate(found):
        if not judged.right:
            found[index] = judge(judged.defect, only)
            done(found[index])
    return found


def named(names: Sequence[str]) -> list[type[Defect]]:
    """The servers of these names; all for none. Raises ConfigError for a name there is not."""
    known = {defect.name: defect for defect in (*SOUND, *DEFECTS)}
    for name in names:
        if name not in known:
            raise ConfigError(f"there is no planted defect {name!r}{suggestion(name, known)}")
    return [known[name] for name in names or known]


def run(flags: argparse.Namespace) -> int:
    """`headstart accept --self-test [NAME ...]`. Exit status 0: the harness was right about all."""
    begun_s = time.perf_counter()
    only = [word.strip() for word in flags.only.split(",") if word.strip()]
    with _log_silenced():
        found = judge_all(named(flags.words), only, lambda judged: print(judged.words, flush=True))
    wrong = [judged for judged in found if not judged.right]
    took_s = time.perf_counter() - begun_s
    print(f"{len(found) - len(wrong)} of {len(found)} judged right in {took_s:.0f} s")
    return 1 if wrong else 0


@contextmanager
def _log_silenced() -> Iterator[None]:
    """What broken servers in this process complain of is not for the person who runs the self-test."""
    loggers = [logging.getLogger(name) for name in ("uvicorn.error", "headstart")]
    before = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        for logger, level in zip(loggers, before, strict=True):
            logger.setLevel(level)
