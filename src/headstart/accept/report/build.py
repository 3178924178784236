"""Results out of a session and its verdicts."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import psutil

from headstart import __version__
from headstart.accept import judge
from headstart.accept.live import UNMEASURED, LiveSession
from headstart.accept.process import variable_names
from headstart.accept.report.results import (
    FORMAT,
    CalibrationEntry,
    CaseEntry,
    GateEntry,
    MachineEntry,
    Results,
    SweepEntry,
    TargetEntry,
    TierEntry,
    VerdictEntry,
)
from headstart.accept.verdict import Verdict


@dataclass
class Run:
    """A run as far as it has come. `session` None: none could be opened."""

    url: str
    salt: str
    started: float
    gates: list[GateEntry] = field(default_factory=list)
    verdicts: list[Verdict] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    session: LiveSession | None = None
    digest: str | None = None


def machine() -> MachineEntry:
    return MachineEntry(
        system=f"{platform.system()} {platform.release()}",
        processor=_processor(),
        cores=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else (os.cpu_count() or 1),
        memory_bytes=psutil.virtual_memory().total,
        python=".".join(map(str, sys.version_info[:3])),
        variables=variable_names(),
    )


def _processor() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as lines:  # noqa: PTH123
            names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    except OSError:
        names = []
    return names[0] if names else platform.processor() or platform.machine()


def results_of(run: Run, took_s: float, *, complete: bool) -> Results:
    """What is known now; right at any moment of the run."""
    session = run.session
    titles = {gate.name: gate.title for gate in run.gates}
    return Results(
        format=FORMAT,
        tool_version=__version__,
        started=run.started,
        took_s=took_s,
        complete=complete,
        salt=run.salt,
        target=_target(run),
        machine=machine(),
        calibration=_calibration(session),
        tiers=_tiers(session),
        gates=tuple(run.gates),
        verdicts=tuple(_verdict(one, titles) for one in run.verdicts),
        cases=_cases(session),
        sweep=_sweep(session),
        sweep_words=_sweep_words(run.verdicts),
        notes=tuple(run.notes),
    )


def _target(run: Run) -> TargetEntry:
    session = run.session
    if session is None:
        return TargetEntry(run.url, "unknown", None, None, "none", None, None, None, run.digest, {})
    facts = session.facts
    return TargetEntry(
        url=run.url,
        server=facts.server,
        version=facts.version,
        model=session.model,
        wire=session.wire.name,
        context_tokens=facts.context_tokens,
        slots=facts.slots,
        block_tokens=facts.block_tokens,
        digest=run.digest or facts.digests.get(session.model or ""),
        facts=_words({**facts.parts, **facts.cache}),
    )


def _words(parts: Mapping[str, str]) -> dict[str, str]:
    return {name: str(value) for name, value in parts.items()}


def _calibration(session: LiveSession | None) -> CalibrationEntry | None:
    if session is None or session.calibration is UNMEASURED:
        return None
    found = session.calibration
    return CalibrationEntry(
        base_s=found.base_s,
        read_s_per_token=found.read_s_per_token,
        warm_s=found.warm_s,
        decode_s_per_token=found.decode_s_per_token,
        chars_per_token=found.chars_per_token,
        overhead_tokens=found.overhead_tokens,
        question=None if found.question is None else found.question.value,
        floor_score=found.floor.score,
        floor_text=found.floor.text,
    )


def _tiers(session: LiveSession | None) -> tuple[TierEntry, ...]:
    if session is None:
        return ()
    entries = []
    for tier in session.options.tiers:
        found = session.found
        cold, warm = found.cold.get(tier.name, []), found.warm.get(tier.name, [])
        fits = tier in session.tiers
        words = f"needs {tier.tokens} tokens, the server's context holds {session.facts.context_tokens}"
        entries.append(
            TierEntry(
                name=tier.name,
                nominal_tokens=tier.tokens,
                prompt_tokens=cold[-1].prompt_tokens if cold else None,
                skipped=None if fits else words,
                cold_s=tuple(one.waited_s for one in cold if one.ok),
                warm_s=tuple(one.waited_s for one in warm if one.ok),
                warm_reused=tuple(one.reused for one in warm if one.ok),
                off_s=tuple(one.waited_s for one in found.control.get(tier.name, []) if one.ok),
            )
        )
    return tuple(entries)


def _cases(session: LiveSession | None) -> tuple[CaseEntry, ...]:
    return () if session is None else tuple(session.cases)


def _sweep(session: LiveSession | None) -> tuple[SweepEntry, ...]:
    points = [] if session is None else session.found.sweep
    return tuple(
        SweepEntry(
            divergence_low=point.divergence.low,
            divergence_high=point.divergence.high,
            restored=point.restored,
            gap=judge.gap(point.divergence, point.restored),
            waited_s=point.waited_s,
            case=point.case,
        )
        for point in points
    )


def _sweep_words(verdicts: Sequence[Verdict]) -> str | None:
    found = [v.figures.get("granularity") for v in verdicts if v.gate == "gap_sweep"]
    return next((str(words) for words in found if words), None)


def _verdict(verdict: Verdict, titles: Mapping[str, str]) -> VerdictEntry:
    return VerdictEntry(
        gate=verdict.gate,
        title=titles.get(verdict.gate, verdict.gate),
        tier=verdict.tier,
        part=verdict.part,
        outcome=verdict.outcome,
        reason=verdict.reason,
        figures=dict(verdict.figures),
        cases=tuple(verdict.cases),
    )
