"""Middle edit: one value in the middle changes; everything before it is kept, nothing after it is."""

from __future__ import annotations

from dataclasses import dataclass

from headstart.accept.clock import confirmed
from headstart.accept.exchange import Exchange
from headstart.accept.fixtures import Marker, Passage, Tier
from headstart.accept.gates import Need
from headstart.accept.gates.append import by_facts
from headstart.accept.gates.evidence import cut_after
from headstart.accept.hits import Hit, joined, judge_hit
from headstart.accept.judge import Answer, Sameness
from headstart.accept.session import Session
from headstart.accept.verdict import Outcome, Verdict, worst

_OUTCOME = {
    Answer.SAME: Outcome.PASS,
    Answer.DIFFERENT: Outcome.FAIL,
    Answer.UNDECIDED: Outcome.INCONCLUSIVE,
}


@dataclass(frozen=True)
class MiddleEdit:
    name: str = "middle_edit"
    title: str = "middle edit"
    shows: str = "A changed value is seen, the old one never again, and the text before it is not read again."
    needs: frozenset[Need] = frozenset()

    def run(self, session: Session) -> list[Verdict]:
        return [verdict for tier in session.tiers for verdict in self._tier(session, tier)]

    def _tier(self, session: Session, tier: Tier) -> list[Verdict]:
        family, first = session.first_sight(tier)
        old = family.at(tier)
        marker = old.markers[len(old.markers) // 2]
        if session.facts.recurrent:
            # A recurrent model may read a divergence once more on its first visit; the second is judged.
            visit = old.edited(marker.name, other_value(marker.value, 2))
            visit = cut_after(visit, marker.at + len(marker.value))
            session.send(session.ask(visit, marker=marker.name, label=f"{tier.name}, first visit"), tier=tier)
        new = old.edited(marker.name, other_value(marker.value, 1))
        ask = session.ask(new, marker=marker.name, label=f"{tier.name}, edited")
        done = session.send(ask, tier=tier)
        reach = session.divergence(first.ask, ask)
        hit = judge_hit(done, reach, session.allowance, session.calibration)
        cold = session.cold(ask, tier=tier)
        if cold is None:
            answer = by_facts(session.facts_right(done, new, marker.name), done)
        else:
            answer = session.same(cold, done, new, marker.name)
        said_old = session.heard(done, marker.name) == marker.value
        (hit,), timed = confirmed(session, [hit], lambda: self._timed(session, tier, back=False))
        cases = [first.case, done.case, *([cold.case] if cold else []), *timed]
        edited = edit_verdict(tier, hit, answer, done, old=marker if said_old else None, cases=cases)
        return [edited, self._back(session, tier, first, old)]

    def _back(self, session: Session, tier: Tier, first: Exchange, old: Passage) -> Verdict:
        """The first text again, word for word."""
        before = session.counters()
        ask = session.ask(old, label=f"{tier.name}, original again")
        done = session.send(ask, tier=tier)
        hit = judge_hit(done, session.divergence(first.ask, ask), session.allowance, session.calibration)
        after = session.counters()
        evicted = after.since(before).evictions if before and after else None
        answer = session.same(first, done, old)
        (hit,), timed = confirmed(session, [hit], lambda: self._timed(session, tier, back=True))
        return back_verdict(tier, hit, answer, done, evicted=evicted, cases=[first.case, done.case, *timed])

    def _timed(self, session: Session, tier: Tier, *, back: bool) -> tuple[Exchange, Exchange]:
        """A new text read whole, and the same edited near its end, or that one after the edit."""
        text = session.fresh(tier)
        at = 9 * len(text.text) // 10
        texts = [text, text.struck(at, "q"), text if back else text.struck(at, "z")]
        cold, _, done = [
            session.send(session.ask(one, label=f"{tier.name}, timed"), tier=tier) for one in texts
        ]
        return cold, done


def other_value(value: str, step: int) -> str:
    """Another value of equal length that differs from its first digit on; another for every step."""
    return str((int(value[0]) - 1 + step) % 9 + 1) + value[:0:-1]


def edit_verdict(
    tier: Tier, hit: Hit, answer: Sameness, done: Exchange, *, old: Marker | None, cases: list[str]
) -> Verdict:
    """`old`: the marker whose former value the reply gave, None where it did not."""
    reasons = [hit.words, answer.detail]
    outcomes = [hit.outcome, _OUTCOME[answer.answer]]
    if old is not None:
        outcomes.append(Outcome.FAIL)
        reasons.insert(0, f"the reply gives the old value {old.value}")
    figures = {**hit.figures(), "score_difference": answer.difference, "edit_s": done.waited_s}
    reasons.append(f"first token after {done.waited_s:.2f} s")
    return Verdict("middle_edit", worst(outcomes), joined(reasons), tier.name, "edited", figures, cases)


def back_verdict(
    tier: Tier, hit: Hit, answer: Sameness, done: Exchange, *, evicted: float | None, cases: list[str]
) -> Verdict:
    """A branch that was evicted, by the server's own count, is no failure of this gate."""
    outcome, words = hit.outcome, hit.words
    if outcome is Outcome.FAIL and done.ok and evicted:
        outcome, words = Outcome.INCONCLUSIVE, f"{words}; the server evicted {evicted:.0f} entries meanwhile"
    figures = {**hit.figures(), "score_difference": answer.difference, "back_s": done.waited_s}
    outcome = worst([outcome, _OUTCOME[answer.answer]])
    return Verdict("middle_edit", outcome, joined([words, answer.detail]), tier.name, "back", figures, cases)


GATE = MiddleEdit()
