"""What the runner does around the gates."""

from __future__ import annotations

import time

import pytest

from headstart.accept.gates import load
from headstart.accept.report.build import Run
from headstart.accept.runner import Means, Runner
from headstart.accept.verdict import Outcome
from headstart.lab.defect import Sound
from headstart.lab.selftest import Bench
from headstart.lab.server import LabServer


class Dying(LabServer):
    """Says once that it ended by itself, during the first gate. `problem`: why it does not come back."""

    problem: str | None = None
    kills = 0

    def died(self) -> str | None:
        return "signal 11 (SIGSEGV)" if not self.kills else None

    def kill(self) -> str | None:
        self.kills += 1
        return self.problem or super().kill()


@pytest.mark.parametrize("problem", [None, "it did not answer"])
def test_a_server_that_ended_by_itself_fails_the_gate_and_is_started_again(problem: str | None) -> None:
    bench = Bench(Sound)
    server = bench.server = Dying(Sound())
    server.problem = problem
    with bench:
        run = Run(url=server.url, salt="dies", started=time.time())
        Runner(run, [load("preflight"), load("knobs")], Means()).run(bench.session("d21f7a91"))
    (death,) = (verdict for verdict in run.verdicts if verdict.part == "alive")
    assert (death.gate, death.outcome, server.kills) == ("preflight", Outcome.FAIL, 1)
    assert "signal 11 (SIGSEGV)" in death.reason
    assert ("it was started again" in death.reason) is (problem is None)
    assert any(verdict.gate == "knobs" for verdict in run.verdicts)
