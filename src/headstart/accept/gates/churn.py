"""Gate: after many unrelated prompts, are old ones still answered right, and how many stay warm?"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from headstart.accept.clock import Doubt, measure_again, repeat_of
from headstart.accept.exchange import Exchange
from headstart.accept.fixtures import Tier
from headstart.accept.gates import Need, survival
from headstart.accept.gates.evidence import (
    Kept,
    Reuse,
    broken,
    figures_of,
    kept,
    of_prompt,
    outcome_of,
    reuse_of,
)
from headstart.accept.gates.survival import Return
from headstart.accept.judge import Answer, Sameness, Warmth
from headstart.accept.session import Session
from headstart.accept.verdict import Outcome, Verdict

COLD_IN_A_ROW = 2
"""So many cold ones, from the newest back, end the count: the older ones went before them."""


@dataclass(frozen=True)
class Visit:
    """One unrelated prompt: first sight and, from the newest back, the second one."""

    first: Exchange
    again: Exchange
    reuse: Reuse
    state: Kept
    answer: Sameness


@dataclass(frozen=True)
class Churn:
    name: str = "churn"
    title: str = "churn"
    shows: str = "After unrelated prompts have filled the cache, old prompts get their own answers again."
    needs: frozenset[Need] = frozenset()

    def run(self, session: Session) -> list[Verdict]:
        count = session.options.churn_prompts
        if not session.tiers or count < 1:
            return [Verdict(self.name, Outcome.INCONCLUSIVE, "no tier fits, or no unrelated prompts allowed")]
        planted = [survival.plant(session, tier, "before the churn") for tier in session.tiers]
        failed = broken(self.name, [one.before for one in planted])
        if failed:
            return [failed]
        before = session.counters()
        visits, sent = self._churn(session, session.tiers[0], count)
        failed = broken(self.name, sent, session.tiers[0], "stay warm")
        if failed:
            return [failed]
        after = session.counters()
        evicted = after.since(before).evictions if before and after else None
        backs = [survival.come_back(session, one, "after the churn") for one in planted]
        head = session.head_tokens
        verdicts = [
            returned(self.name, back, count, allowance=session.allowance, head=head, evicted=evicted)
            for back in backs
        ]
        doubt = None
        if visits and visits[0].state is Kept.NONE and visits[0].reuse.tokens is None:
            doubt = measure_again(session, Warmth.COLD, repeat_of(session, session.tiers[0]))
        full = bool(evicted) or any(one.figures.get("state") in ("none", "part") for one in verdicts)
        return [*verdicts, stay_warm(self.name, session.tiers[0], visits, count, full=full, doubt=doubt)]

    def _churn(self, session: Session, tier: Tier, count: int) -> tuple[list[Visit], list[Exchange]]:
        """Sends `count` new prompts, then again from the newest back. Stops at a request that fails."""
        firsts = []
        sent: list[Exchange] = []
        for number in range(1, count + 1):
            session.say(f"unrelated prompt {number} of {count}")
            passage = session.fresh(tier)
            first = session.send(session.ask(passage, label=f"{tier.name}, unrelated {number}"), tier=tier)
            sent.append(first)
            if not first.ok:
                return [], sent
            firsts.append((number, passage, first))
        visits: list[Visit] = []
        for number, passage, first in reversed(firsts):
            session.say(f"unrelated prompt {number} again")
            ask = session.ask(passage, label=f"{tier.name}, unrelated {number} again")
            again = session.send(ask, tier=tier)
            sent.append(again)
            if not again.ok:
                break
            reuse = reuse_of(again, session.calibration, tier.least)
            state = kept(reuse, None, session.allowance, session.head_tokens)
            answer = session.same(first, again, passage)
            visits.append(Visit(first, again, reuse, state, answer))
            if len(visits) >= COLD_IN_A_ROW and all(v.state is Kept.NONE for v in visits[-COLD_IN_A_ROW:]):
                break
        return visits, sent


def returned(
    gate: str, back: Return, churned: int, *, allowance: int, head: int, evicted: float | None
) -> Verdict:
    """A prompt asked again after `churned` others. A miss is no fault, another answer is one.

    `evicted`: entries the server says it dropped meanwhile; None: it does not say.
    """
    part = "return"
    failed = broken(gate, (back.before, back.after), back.tier, part)
    if failed:
        return failed
    state = kept(back.reuse, None, allowance, head)
    word = {Kept.ALL: "hit", Kept.PART: "part hit", Kept.NONE: "miss", Kept.UNKNOWN: "hit or miss unknown"}
    dropped = "" if evicted is None else f", {evicted:g} entries evicted"
    told = f"after {churned} unrelated prompts: {word[state]}, {of_prompt(back.reuse)}{dropped}"
    return Verdict(
        gate,
        outcome_of(back.answer),
        f"{told}; {back.answer.detail}",
        tier=back.tier.name,
        part=part,
        figures={
            **figures_of(back.reuse, back.before),
            "state": state.value,
            "unrelated_prompts": churned,
            "evictions": evicted,
            "score_difference": back.answer.difference,
        },
        cases=(back.before.case, back.after.case),
    )


def stay_warm(
    gate: str,
    tier: Tier,
    visits: Sequence[Visit],
    churned: int,
    *,
    full: bool = False,
    doubt: Doubt | None = None,
) -> Verdict:
    """How many of the newest prompts are still warm. `visits`: from the newest back. `full`: something
    was evicted, by the server's count or by a return that missed. `doubt`: what came of measuring again,
    where only the clock says that the newest is cold."""
    part = "stay warm"
    cases = tuple(visit.again.case for visit in visits)
    wrong = [visit for visit in visits if visit.answer.answer is Answer.DIFFERENT]
    if wrong:
        reason = f"{len(wrong)} of {len(visits)} prompts answer otherwise when asked again: "
        reason += wrong[0].answer.detail
        bad = tuple(case for visit in wrong for case in (visit.first.case, visit.again.case))
        return Verdict(gate, Outcome.FAIL, reason, tier.name, part, _counts(visits, churned), bad)
    outcome, reason = _warm_words(visits, tier, churned, full)
    if outcome is Outcome.FAIL and visits[0].reuse.tokens is None:
        outcome = Outcome.FAIL if doubt is not None and doubt.agreed else Outcome.INCONCLUSIVE
        reason += f" by the clock; {doubt.words}" if doubt is not None else " by the clock"
    return Verdict(gate, outcome, reason, tier.name, part, _counts(visits, churned), cases)


def _warm_words(visits: Sequence[Visit], tier: Tier, churned: int, full: bool) -> tuple[Outcome, str]:
    if any(visit.state is Kept.UNKNOWN for visit in visits) or not visits:
        return Outcome.INCONCLUSIVE, "the server does not say what it reuses, and the clock cannot tell"
    warm, part = _warm(visits), _in_part(visits)
    if warm == len(visits) == churned:
        limit = "what came before them was evicted" if full else "the limit was not reached"
        return Outcome.PASS, f"all {churned} prompts of {tier.name} stay warm; {limit}"
    if warm == 0:
        words = f"partly: {of_prompt(visits[0].reuse)}" if part else "nothing of it"
        return Outcome.FAIL, f"not even the newest of {churned} prompts stays warm, {words}"
    partly = f", {part} more in part" if part else ""
    return Outcome.PASS, f"{warm} of {churned} prompts of {tier.name} stay warm, from the newest back{partly}"


def _counts(visits: Iterable[Visit], churned: int) -> dict[str, int | float | str | bool | None]:
    visits = list(visits)
    known = not any(visit.state is Kept.UNKNOWN for visit in visits)
    return {
        "unrelated_prompts": churned,
        "asked_again": len(visits),
        "warm_prompts": _warm(visits) if known else None,
        "partly_warm_prompts": _in_part(visits) if known else None,
    }


def _warm(visits: Iterable[Visit]) -> int:
    """At least half came from the cache: how finely it restores is for other gates."""
    return sum(_half(visit) for visit in visits)


def _in_part(visits: Iterable[Visit]) -> int:
    return sum(visit.state is Kept.PART and not _half(visit) for visit in visits)


def _half(visit: Visit) -> bool:
    tokens, prompt = visit.reuse.tokens, visit.reuse.prompt
    if visit.state is Kept.PART and tokens is not None and prompt is not None:
        return 2 * tokens >= prompt
    return visit.state is Kept.ALL


GATE = Churn()
