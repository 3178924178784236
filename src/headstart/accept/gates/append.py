"""Append: a longer text that begins with a shorter one is read from where the shorter one ends."""

from __future__ import annotations

from dataclasses import dataclass

from headstart.accept.clock import confirmed
from headstart.accept.counting import shared_chars
from headstart.accept.exchange import Exchange
from headstart.accept.fixtures import Passage, Tier
from headstart.accept.gates import Need
from headstart.accept.gates.evidence import cut_after
from headstart.accept.hits import Hit, joined, judge_hit
from headstart.accept.judge import Answer, Reach, Sameness
from headstart.accept.session import Session
from headstart.accept.verdict import Outcome, Verdict, worst

ADDED_SHARE = 1 / 64
"""Of the smallest tier: what is added to it still fits into a context as long as the tier."""


@dataclass(frozen=True)
class Append:
    name: str = "append"
    title: str = "append"
    shows: str = (
        "What is added to a text is read; what was there is not, and the answer is that of a cold run."
    )
    needs: frozenset[Need] = frozenset()

    def run(self, session: Session) -> list[Verdict]:
        tiers = session.tiers
        family, first = session.first_sight(tiers[0])
        added = int(tiers[0].tokens * ADDED_SHARE * session.calibration.chars_per_token)
        verdicts = [self._step(session, first, family.at(tiers[0]).grown(added), tiers[0])[0]]
        before = first
        for tier in tiers[1:]:
            verdict, before = self._step(session, before, family.at(tier), tier)
            verdicts.append(verdict)
        return verdicts

    def _step(
        self, session: Session, before: Exchange, longer: Passage, tier: Tier
    ) -> tuple[Verdict, Exchange]:
        """The verdict, and the exchange that read the longer text."""
        if session.facts.recurrent:
            # The first visit of a divergence leaves the state there; the second, with another character
            # in the same place, is judged.
            at = shared_chars(before.ask.text, session.ask(longer).text)
            visit = session.ask(cut_after(longer.struck(at), at), label=f"{tier.name}, first visit")
            session.send(visit, tier=tier)
        ask = session.ask(longer, label=f"{tier.name}, appended")
        done = session.send(ask, tier=tier)
        divergence = session.divergence(before.ask, ask)
        hit = judge_hit(done, divergence, session.allowance, session.calibration)
        cold = session.cold(ask, tier=tier)
        if cold is not None:
            answer = session.same(cold, done, longer)
        else:
            right = session.facts_right(done, longer)
            answer = by_facts(right, done)
        (hit,), timed = confirmed(session, [hit], lambda: self._timed(session, tier))
        cases = [before.case, done.case, *([cold.case] if cold else []), *timed]
        return verdict(tier, hit, answer, done, divergence=divergence, cases=cases), done

    def _timed(self, session: Session, tier: Tier) -> tuple[Exchange, Exchange]:
        """A new text read whole, and another one most of which was read before."""
        whole, longer = session.fresh(tier), session.fresh(tier)
        cold = session.send(session.ask(whole, label=f"{tier.name}, timed"), tier=tier)
        at = 9 * len(longer.text) // 10
        for text in (longer.cut(at), longer.struck(at)):
            session.send(session.ask(text, label=f"{tier.name}, most of it"), tier=tier)
        return cold, session.send(session.ask(longer, label=f"{tier.name}, timed, appended"), tier=tier)


def by_facts(right: bool | None, done: Exchange) -> Sameness:
    """What planted facts alone say, where there is no cold run to compare with."""
    if right is None:
        return Sameness(Answer.UNDECIDED, "facts", "no cold answer to compare with")
    if right:
        return Sameness(Answer.SAME, "facts", "right facts")
    return Sameness(Answer.UNDECIDED, "facts", f"the answer {done.answer[:40]!r} does not give the fact")


def verdict(
    tier: Tier, hit: Hit, answer: Sameness, done: Exchange, *, divergence: Reach, cases: list[str]
) -> Verdict:
    kinds = {
        Answer.SAME: Outcome.PASS,
        Answer.DIFFERENT: Outcome.FAIL,
        Answer.UNDECIDED: Outcome.INCONCLUSIVE,
    }
    figures = {
        **hit.figures(),
        "divergence_tokens": divergence.low,
        "prompt_tokens": done.prompt_tokens,
        "score_difference": answer.difference,
        "append_s": done.waited_s,
    }
    outcome = worst([hit.outcome, kinds[answer.answer]])
    reason = joined([hit.words, answer.detail, f"first token after {done.waited_s:.2f} s"])
    return Verdict("append", outcome, reason, tier.name, "", figures, cases)


GATE = Append()
