"""Titles and summaries between two turns of a long conversation: is its prefix still there?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from headstart.accept import judge
from headstart.accept.clock import Doubt, measure_again
from headstart.accept.exchange import Ask, Exchange, Message
from headstart.accept.fixtures import Tier
from headstart.accept.gates import Need
from headstart.accept.gates.evidence import restored
from headstart.accept.gates.trouble import trouble
from headstart.accept.judge import Calibration, Reach, Warmth
from headstart.accept.session import Session
from headstart.accept.verdict import Figure, Outcome, Verdict

NAME = "side_requests"
LEAST, MOST = 4, 12
SLACK_TOKENS = 32
"""A gap may differ by a few tokens from turn to turn without anything being lost."""


@dataclass(frozen=True)
class Turn:
    """A later turn of the conversation. `reach`: what it shares with the turn before. `warmth`: by the
    clock."""

    exchange: Exchange
    reach: Reach
    warmth: Warmth

    @property
    def gap(self) -> int | None:
        return judge.gap(self.reach, restored(self.exchange))


def verdict(
    tier: str,
    before: Turn,
    after: Turn,
    sides: Sequence[Exchange],
    *,
    allowance: int,
    calibration: Calibration,
    doubt: Doubt | None = None,
) -> Verdict:
    """`before`: a turn right after the one before it; `after`: one with `sides` in between. `doubt`: what
    came of measuring again, where `lost_by_clock`."""
    failed = trouble(NAME, [before.exchange, *sides, after.exchange], tier=tier)
    if failed is not None:
        return failed
    if before.gap is None or after.gap is None:
        return _by_clock(tier, before, after, sides, doubt)
    lost = max(0, after.gap - max(before.gap, allowance))
    lost_s = lost * calibration.read_s_per_token
    figures: dict[str, Figure] = {
        "side_requests": len(sides),
        "shared_tokens": after.reach.low,
        "reused_before": restored(before.exchange),
        "reused_after": restored(after.exchange),
        "gap_before_tokens": before.gap,
        "gap_after_tokens": after.gap,
        "lost_tokens": lost,
        "lost_s": lost_s,
    }

    def answer(outcome: Outcome, reason: str) -> Verdict:
        return Verdict(NAME, outcome, reason, tier=tier, figures=figures, cases=_cases(before, after, sides))

    if not restored(before.exchange):
        reason = "the turn before the side requests reused nothing either, so they had nothing to take away"
        return answer(Outcome.INCONCLUSIVE, reason)
    if lost > SLACK_TOKENS:
        reason = (
            f"after {len(sides)} short requests {restored(after.exchange):,} of {after.reach.low:,} tokens "
            f"were still there: {lost:,} read again, {lost_s:.1f} s"
        )
        return answer(Outcome.FAIL, reason)
    reason = (
        f"{len(sides)} short requests in between cost nothing: {restored(after.exchange):,} tokens reused"
    )
    return answer(Outcome.PASS, f"{reason}, {restored(before.exchange):,} before them")


def lost_by_clock(before: Turn, after: Turn) -> bool:
    """Whether nothing but the clock says that the prefix was lost."""
    known = before.gap is not None and after.gap is not None
    return not known and before.warmth is Warmth.WARM and after.warmth is Warmth.COLD


def _by_clock(
    tier: str, before: Turn, after: Turn, sides: Sequence[Exchange], doubt: Doubt | None
) -> Verdict:
    figures: dict[str, Figure] = {
        "side_requests": len(sides),
        "before_s": before.exchange.waited_s,
        "after_s": after.exchange.waited_s,
    }
    times = f"{before.exchange.waited_s:.2f} s before them, {after.exchange.waited_s:.2f} s after"
    if before.warmth is Warmth.WARM and after.warmth is Warmth.WARM:
        outcome, reason = Outcome.PASS, f"by the clock {len(sides)} short requests cost nothing: {times}"
    elif lost_by_clock(before, after):
        outcome = Outcome.FAIL if doubt is not None and doubt.agreed else Outcome.INCONCLUSIVE
        reason = f"by the clock everything was read again after {len(sides)} short requests: {times}"
        reason += f"; {doubt.words}" if doubt is not None else ""
        figures |= doubt.figures() if doubt is not None else {}
    else:
        outcome = Outcome.INCONCLUSIVE
        reason = f"the server does not say what it reused, and the clock cannot tell: {times}"
    return Verdict(NAME, outcome, reason, tier=tier, figures=figures, cases=_cases(before, after, sides))


def _cases(before: Turn, after: Turn, sides: Sequence[Exchange]) -> list[str]:
    return [before.exchange.case, *(side.case for side in sides), after.exchange.case]


class SideRequests:
    name = NAME
    title = "side requests"
    shows = "titles and summaries asked for in between do not cost a long conversation its prefix"
    needs: frozenset[Need] = frozenset()

    def run(self, session: Session) -> list[Verdict]:
        known = [(tier, session.first_sight(tier)[0]) for tier in session.tiers]
        return [_tier(session, tier, family.at(tier).text) for tier, family in known]


def _tier(session: Session, tier: Tier, text: str) -> Verdict:
    opened, talk = _conversation(session, tier, text)
    if talk is None:
        failed = trouble(NAME, [opened], tier=tier.name)
        assert failed is not None
        return failed
    before, sides, after = talk
    doubt = None
    if all(one.ok for one in (before.exchange, after.exchange)) and lost_by_clock(before, after):
        doubt = measure_again(session, Warmth.COLD, lambda: _timed(session, tier))
    allowance, calibration = session.allowance, session.calibration
    return verdict(tier.name, before, after, sides, allowance=allowance, calibration=calibration, doubt=doubt)


def _timed(session: Session, tier: Tier) -> tuple[Exchange, Exchange]:
    """The first turn of a new conversation, and its turn after the side requests."""
    opened, talk = _conversation(session, tier, session.fresh(tier).text)
    return opened, opened if talk is None else talk[2].exchange


def _conversation(
    session: Session, tier: Tier, text: str
) -> tuple[Exchange, tuple[Turn, list[Exchange], Turn] | None]:
    """Its first turn, and where that came off: the second, side requests, and the third."""
    first = session.converse([Message("user", text + _QUESTIONS[0])], label=f"{tier.name}, turn 1")
    opened = session.send(first, tier=tier)
    if opened.failure is not None:
        return opened, None
    second = follow(first, opened.answer, _QUESTIONS[1], f"{tier.name}, turn 2")
    before = _turn(session, first, second, tier)
    sides = [session.send(ask) for ask in _sides(session, text)]
    third = follow(second, before.exchange.answer, _QUESTIONS[2], f"{tier.name}, turn 3")
    return opened, (before, sides, _turn(session, second, third, tier))


_QUESTIONS = (
    "\n\nWhat is this text about? Answer with a few words.",
    "And what does its first sentence say?",
    "And what does its last sentence say?",
)


def follow(ask: Ask, reply: str, question: str, label: str) -> Ask:
    """The conversation of `ask`, its reply and one more question."""
    if ask.prompt is not None:
        return replace(ask, prompt=f"{ask.prompt} {reply}\n\nUser: {question}\n\nAssistant:", label=label)
    more = (Message("assistant", reply or "Yes."), Message("user", question))
    return replace(ask, messages=(*ask.messages, *more), label=label)


def _turn(session: Session, before: Ask, ask: Ask, tier: Tier) -> Turn:
    exchange = session.send(ask, tier=tier)
    warmth = judge.warmth(exchange.waited_s, exchange.prompt_tokens or tier.tokens, session.calibration)
    return Turn(exchange, session.divergence(before, ask), warmth)


def _sides(session: Session, text: str) -> list[Ask]:
    """What clients send on the side: a title, a summary, in turn, one more than the server has slots."""
    count = min(MOST, max(LEAST, (session.facts.slots or 0) + 1))
    asked = []
    for number in range(1, count + 1):
        title = number % 2 == 1
        words = "a title of at most five words" if title else "a summary of one sentence"
        begins = 1000 * number % max(1, len(text) - 1000)
        part = text[begins : begins + (600 if title else 1200)]
        message = Message("user", f"Number {number}. Write {words} for this conversation:\n\n{part}")
        label = f"{'title' if title else 'summary'} {number}"
        asked.append(session.converse([message], max_tokens=8, logprobs=0, label=label))
    return asked


GATE = SideRequests()
