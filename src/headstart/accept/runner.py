"""Runs the gates in order and keeps what they answer, whatever happens on the way."""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from headstart.accept import gates
from headstart.accept.gates import Gate, Need
from headstart.accept.live import LiveSession
from headstart.accept.report.build import Run, results_of
from headstart.accept.report.results import GateEntry, Results
from headstart.accept.verdict import Outcome, Verdict

HOW = {
    Need.RESTART: "give --spawn or --restart-cmd, so that the server can be restarted",
    Need.KILL: "give --spawn: only a server of its own is killed",
    Need.CONTROL: "give --control-cmd or --control-url, the same server with its cache off",
    Need.MODELS: "give --other-model: the server must have a second one",
}


@dataclass(frozen=True)
class Means:
    """What the command line gave beside the server. `missing` says what a gate lacks."""

    control: bool = False

    def missing(self, need: Need, session: LiveSession) -> bool:
        process = session.control
        if need is Need.RESTART:
            return process is None or not process.can_restart
        if need is Need.KILL:
            return process is None or not process.can_kill
        if need is Need.CONTROL:
            return not self.control
        return session.options.other_model is None and len(session.facts.models) < 2


def chosen(only: Sequence[str] = (), skip: Sequence[str] = ()) -> list[Gate]:
    """The gates to run, in order. Raises KeyError with the name of one there is not."""
    for name in (*only, *skip):
        if name not in gates.NAMES:
            raise KeyError(name)
    wanted = [name for name in gates.available() if (not only or name in only) and name not in skip]
    return [gates.load(name) for name in wanted]


class Runner:
    """One run. `show`: told every verdict as it falls; `save`: told the results after every gate."""

    def __init__(
        self,
        run: Run,
        chosen_gates: Sequence[Gate],
        means: Means,
        *,
        show: Callable[[Gate, Verdict], None] = lambda gate, verdict: None,
        begin: Callable[[Gate, int, int], None] = lambda gate, number, of: None,
        save: Callable[[Results], None] = lambda results: None,
    ) -> None:
        self._run = run
        self._gates = list(chosen_gates)
        self._means = means
        self._show, self._begin, self._save = show, begin, save
        self._begun_s = time.perf_counter()
        run.gates[:] = [GateEntry(g.name, g.title, g.shows, None, None) for g in self._gates]

    def run(self, session: LiveSession) -> Results:
        """All gates. A stop by the person (KeyboardInterrupt) ends it early with what is known."""
        self._run.session = session
        complete = False
        try:
            for number, gate in enumerate(self._gates):
                self._one(number, gate, session)
            complete = True
        except KeyboardInterrupt:
            self._run.notes.append("stopped by the person who ran it; later gates did not run")
        return self.results(complete)

    def results(self, complete: bool) -> Results:
        """What is known now, saved."""
        found = results_of(self._run, time.perf_counter() - self._begun_s, complete=complete)
        self._save(found)
        return found

    def _one(self, number: int, gate: Gate, session: LiveSession) -> None:
        self._begin(gate, number + 1, len(self._gates))
        session.gate = gate.name
        begun_s = time.perf_counter()
        verdicts = self._verdicts(gate, session)
        verdicts += self._revive(gate, session)
        took_s = time.perf_counter() - begun_s
        self._run.gates[number] = replace(
            self._run.gates[number], took_s=took_s, started_s=begun_s - self._begun_s
        )
        self._run.verdicts += verdicts
        for verdict in verdicts:
            self._show(gate, verdict)
        self.results(False)

    def _revive(self, gate: Gate, session: LiveSession) -> list[Verdict]:
        """A server of the harness's own that ended by itself is a failure of the gate it ended in, and is
        started again for the next."""
        control = session.control
        how = None if control is None else control.died()
        if control is None or how is None:
            return []
        problem = control.kill()
        then = "it was started again" if problem is None else f"it cannot be started again: {problem}"
        words = f"the server's process ended by itself while this was asked: {how}; {then}"
        self._run.notes.append(f"{gate.name}: {words}")
        return [Verdict(gate.name, Outcome.FAIL, words, part="alive")]

    def _verdicts(self, gate: Gate, session: LiveSession) -> list[Verdict]:
        lacking = [need for need in Need if need in gate.needs and self._means.missing(need, session)]
        if lacking:
            return [Verdict(gate.name, Outcome.UNSUPPORTED, "; ".join(HOW[need] for need in lacking))]
        if not session.tiers:
            return [Verdict(gate.name, Outcome.UNSUPPORTED, "no tier fits into the server's context")]
        try:
            found = gate.run(session)
        except Exception as error:  # noqa: BLE001 a fault of the harness must not end the run
            place = traceback.extract_tb(error.__traceback__)[-1]
            words = f"the gate itself failed: {type(error).__name__}: {error} ({place.name}:{place.lineno})"
            self._run.notes.append(f"{gate.name}: {''.join(traceback.format_exception(error))}")
            return [Verdict(gate.name, Outcome.INCONCLUSIVE, words)]
        none = Verdict(gate.name, Outcome.INCONCLUSIVE, "the gate gave no verdict")
        return found or [none]
