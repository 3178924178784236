"""Gate: stopped gracefully and started again, does the server go on where it was?"""

from __future__ import annotations

from dataclasses import dataclass

from headstart.accept.gates import Need, survival
from headstart.accept.gates.evidence import replaced
from headstart.accept.gates.survival import Loss
from headstart.accept.session import Session
from headstart.accept.verdict import Outcome, Verdict


@dataclass(frozen=True)
class Restart:
    name: str = "restart"
    title: str = "restart"
    shows: str = "After a graceful restart every prompt comes back from disk, with the same answer."
    needs: frozenset[Need] = frozenset({Need.RESTART})

    def run(self, session: Session) -> list[Verdict]:
        control = session.control
        if control is None or not control.can_restart:
            reason = "no way to restart the server was given: --spawn or --restart-cmd"
            return [Verdict(self.name, Outcome.UNSUPPORTED, reason)]
        if not session.tiers:
            return [Verdict(self.name, Outcome.INCONCLUSIVE, "no tier fits into the server's context")]
        planted = survival.plant_all(session, "before the restart")
        disk, before = survival.disk_stated(session), session.counters()
        session.say("restarting the server")
        problem = control.restart()
        if problem is not None:
            return [not_back(self.name, problem, control.spawned)]
        after = session.counters()
        loss = Loss(
            "a restart",
            replaced(control.spawned, before, after),
            disk,
        )
        survival.warm_up(session)
        return [
            survival.verdict(
                self.name,
                survival.come_back(session, one, "after the restart"),
                loss,
                allowance=session.allowance,
                head=session.head_tokens,
            )
            for one in planted
        ]


def not_back(gate: str, problem: str, spawned: bool) -> Verdict:
    """The server did not answer again. With a command of the person's own, that may be the command."""
    outcome = Outcome.FAIL if spawned else Outcome.INCONCLUSIVE
    return Verdict(gate, outcome, f"the server did not come back from a restart: {problem}")


GATE = Restart()
