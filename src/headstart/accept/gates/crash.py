"""Gate: killed with SIGKILL, does the server come back, answer right, and with what it had finished?"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from headstart.accept.gates import Need, survival
from headstart.accept.gates.survival import Loss, Planted
from headstart.accept.session import Control, Session
from headstart.accept.verdict import Outcome, Verdict

OPEN_BLOCK_TOKENS = 512
"""A block that was not full yet may wait in memory for the next turn to fill it."""
SETTLE_S = 3.0
"""What was answered this long before the kill has had its time to be written."""


@dataclass(frozen=True)
class Crash:
    """`pause`: waits that many seconds."""

    name: str = "crash"
    title: str = "crash"
    shows: str = (
        "After SIGKILL the server starts again, answers the same, and has kept what was finished before."
    )
    needs: frozenset[Need] = frozenset({Need.KILL})
    pause: Callable[[float], None] = time.sleep

    def run(self, session: Session) -> list[Verdict]:
        control = session.control
        if control is None or not control.can_kill:
            reason = "only a server of the harness's own is killed: give --spawn"
            return [Verdict(self.name, Outcome.UNSUPPORTED, reason)]
        if not session.tiers:
            return [Verdict(self.name, Outcome.INCONCLUSIVE, "no tier fits into the server's context")]
        verdicts = self._settled(session, control)
        if verdicts[0].part != "start":
            verdicts += self._torn(session, control)
        return verdicts

    def _settled(self, session: Session, control: Control) -> list[Verdict]:
        """Killed some seconds after its last reply: what was finished is due."""
        planted = survival.plant_all(session, "before the kill")
        disk = survival.disk_stated(session)
        self.pause(SETTLE_S)
        session.say("killing the server (SIGKILL)")
        problem = control.kill()
        if problem is not None:
            return [self._not_back(problem)]
        survival.warm_up(session)
        loss = Loss("SIGKILL", True, disk)
        allowance, head = max(session.allowance, OPEN_BLOCK_TOKENS), session.head_tokens
        return [
            survival.verdict(
                self.name,
                survival.come_back(session, one, "after the kill"),
                loss,
                allowance=allowance,
                head=head,
                part="kept",
            )
            for one in planted
        ]

    def _torn(self, session: Session, control: Control) -> list[Verdict]:
        """Killed at once after a reply, when it may be writing, and halfway through reading a prompt."""
        tier = session.small
        whole = survival.plant_new(session, tier, "right before the kill")
        half = self._interrupted(session, whole)
        session.say("killing the server (SIGKILL) while it works")
        problem = control.kill()
        if problem is not None:
            return [self._not_back(problem)]
        loss = Loss("SIGKILL at once", True, None)
        back = survival.come_back(session, whole, "after the kill at once")
        verdicts = [survival.answer_verdict(self.name, back, loss, "while writing")]
        after, cold, answer = survival.ask_interrupted(session, half)
        verdicts.append(
            survival.interrupted_verdict(
                self.name, tier, after, cold=cold, answer=answer, part="while reading"
            )
        )
        return verdicts

    def _interrupted(self, session: Session, whole: Planted) -> Planted:
        passage = session.fresh(whole.tier)
        ask = session.ask(passage, label=f"{whole.tier.name}, broken off by the kill")
        exchange = session.send(ask, tier=whole.tier, cancel_after_s=whole.before.waited_s / 2)
        return Planted(whole.tier, passage, ask, exchange)

    def _not_back(self, problem: str) -> Verdict:
        reason = f"the server did not come back after SIGKILL: {problem}"
        return Verdict(self.name, Outcome.FAIL, reason, part="start")


GATE = Crash()
