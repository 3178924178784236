"""Exact repeat: the same prompt again costs nothing and says the same."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from headstart.accept.clock import confirmed, repeat_of
from headstart.accept.fixtures import Tier
from headstart.accept.gates import Need
from headstart.accept.hits import Hit, joined, judge_hit
from headstart.accept.judge import Answer, Sameness, Timing
from headstart.accept.session import Session
from headstart.accept.verdict import Figure, Outcome, Verdict, worst

TIMES = 3


@dataclass(frozen=True)
class ExactRepeat:
    name: str = "exact_repeat"
    title: str = "exact repeat"
    shows: str = "A prompt sent again is not read again, and the reply is the same, streamed or not."
    needs: frozenset[Need] = frozenset()

    def run(self, session: Session) -> list[Verdict]:
        return [self._tier(session, tier) for tier in session.tiers]

    def _tier(self, session: Session, tier: Tier) -> Verdict:
        family, first = session.first_sight(tier)
        if first.failure is not None:
            words = f"the first request failed: {first.failure.detail}"
            return Verdict(self.name, Outcome.INCONCLUSIVE, words, tier.name, cases=[first.case])
        done = []
        for number in range(TIMES + 1):
            streamed = number < TIMES
            label = f"{tier.name}, repeat {number + 1}{'' if streamed else ', not streamed'}"
            done.append(session.send(replace(first.ask, stream=streamed, label=label), tier=tier))
        session.found.warm.setdefault(tier.name, []).extend(done[:TIMES])
        divergence = session.divergence(first.ask, first.ask)
        hits = [judge_hit(one, divergence, session.allowance, session.calibration) for one in done]
        # What is not streamed has no first token to judge by; what the others show stands.
        if hits[TIMES].by in ("clock", "nothing") and done[TIMES].ok:
            hits.pop()
        hits, timed = confirmed(session, hits, repeat_of(session, tier))
        answers = [session.same(first, one, family.at(tier)) for one in done]
        cold = session.found.cold[tier.name]
        figures: dict[str, Figure] = {
            "prompt_tokens": first.prompt_tokens,
            "cold_s": Timing(tuple(one.waited_s for one in cold)).median_s,
            "warm_s": Timing(tuple(one.waited_s for one in done[:TIMES])).median_s,
            "spread_s": Timing(tuple(one.waited_s for one in done[:TIMES])).spread_s,
        }
        empty = any(one.ok and not one.text and not one.reasoning for one in done)
        cases = [first.case, *(one.case for one in done), *timed]
        return verdict(tier, hits, answers, figures, empty=empty, cases=cases)


def verdict(
    tier: Tier,
    hits: Sequence[Hit],
    answers: Sequence[Sameness],
    figures: dict[str, Figure],
    *,
    empty: bool,
    cases: Sequence[str],
) -> Verdict:
    """One line for all repeats of a tier."""
    bad = [hit.words for hit in hits if hit.outcome is not Outcome.PASS]
    other = [one.detail for one in answers if one.answer is not Answer.SAME]
    kinds = {
        Answer.SAME: Outcome.PASS,
        Answer.DIFFERENT: Outcome.FAIL,
        Answer.UNDECIDED: Outcome.INCONCLUSIVE,
    }
    outcomes = [hit.outcome for hit in hits] + [kinds[one.answer] for one in answers]
    reasons = [*bad, *other]
    if empty:
        outcomes.append(Outcome.FAIL)
        reasons.insert(0, "a repeat came back empty")
    if not reasons:
        cold_s, warm_s = figures["cold_s"], figures["warm_s"]
        assert isinstance(cold_s, float)
        assert isinstance(warm_s, float)
        reasons = [hits[0].words, "same answers", f"{cold_s:.2f} s cold, {warm_s:.3f} s warm"]
    gaps = [hit.gap for hit in hits if hit.gap is not None]
    figures |= {"gap_tokens": max(gaps) if gaps else None, "reused_tokens": hits[0].reused if hits else None}
    return Verdict("exact_repeat", worst(outcomes), joined(reasons), tier.name, "", figures, cases)


GATE = ExactRepeat()
