"""Several conversations at once: does any of them hear another's facts, and is a common head read once?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from headstart.accept.exchange import Ask, Counters, Exchange, FailureKind
from headstart.accept.fixtures import Passage
from headstart.accept.gates import Need
from headstart.accept.gates.trouble import trouble
from headstart.accept.judge import Answer, Reach, Sameness
from headstart.accept.session import Session
from headstart.accept.verdict import Figure, Outcome, Verdict

NAME = "concurrency"
MIXING, HEAD = "answers", "same head"
BUSY = (429, 503)
LARGEST_TOKENS, SMALLEST_TOKENS = 800, 200
SLACK_TOKENS = 2


@dataclass(frozen=True)
class Heard:
    """A reply given while others were asked for too. `alone`: the same question asked alone, where there
    was one that can be trusted. `right`: its planted fact, None where the model cannot be asked; the model
    gets it right alone. `foreign`: another conversation's value that it holds."""

    exchange: Exchange
    alone: Exchange | None
    sameness: Sameness | None
    right: bool | None
    foreign: str | None


def foreign(exchange: Exchange, own: Passage, others: Sequence[Passage]) -> str | None:
    """A planted value of `others` that the reply holds and its own prompt does not."""
    said = exchange.text + exchange.reasoning
    values = [marker.value for other in others for marker in other.markers]
    return next((value for value in values if value in said and value not in own.text), None)


def verdict(heard: Sequence[Heard], conversations: int) -> Verdict:
    """Whether answers stayed apart."""
    exchanges = [one.exchange for one in heard]
    failed = _busy(exchanges, MIXING) or trouble(NAME, exchanges, part=MIXING)
    if failed is not None:
        return failed
    mixed = [one for one in heard if one.foreign is not None]
    wrong = [one for one in heard if one.right is False]
    other = [one for one in heard if one.sameness and one.sameness.answer is Answer.DIFFERENT]
    same = [one for one in heard if one.sameness and one.sameness.answer is Answer.SAME]
    judged = sum(one.right is not None or one in same for one in heard)
    moved = [one.sameness.difference for one in heard if one.sameness and one.sameness.difference is not None]
    figures: dict[str, Figure] = {
        "conversations": conversations,
        "replies": len(heard),
        "replies_judged": judged,
        "replies_mixed": len(mixed),
        "replies_wrong": len(wrong),
        "replies_different": len(other),
        "largest_difference": max(moved, default=None),
    }

    def answer(outcome: Outcome, reason: str, shown: Sequence[Heard]) -> Verdict:
        cases = [e.case for one in shown for e in (one.exchange, one.alone) if e is not None]
        return Verdict(NAME, outcome, reason, part=MIXING, figures=figures, cases=list(dict.fromkeys(cases)))

    count = f"{conversations} conversations in turn and at once"
    if mixed:
        reason = (
            f"{len(mixed)} of {len(heard)} replies held a fact of another conversation, "
            f"e.g. {mixed[0].foreign}"
        )
        return answer(Outcome.FAIL, reason, mixed)
    if wrong:
        reason = (
            f"{len(wrong)} of {len(heard)} replies got their own fact wrong that is right when asked alone, "
            f"e.g. {_short(wrong[0].exchange)}"
        )
        return answer(Outcome.FAIL, reason, wrong)
    if other:
        detail = other[0].sameness.detail if other[0].sameness else ""
        reason = f"{len(other)} of {len(heard)} replies differ from those given alone: {detail}"
        return answer(Outcome.FAIL, reason, other)
    if judged < len(heard) or not heard:
        reason = f"{count}: only {judged} of {len(heard)} replies could be judged, none held another's fact"
        return answer(Outcome.INCONCLUSIVE, reason, heard)
    reason = f"{count}: {len(heard)} replies as right as those given alone, none held another's fact"
    return answer(Outcome.PASS, reason, heard)


def head_verdict(both: Sequence[Exchange], head: Reach, rise: Counters | None, common: int) -> Verdict:
    """Two prompts with the same new head at once: how often it was read. `rise`: of the server's counters
    over both. `common`: tokens that these prompts share with any other (template)."""
    failed = _busy(both, HEAD) or trouble(NAME, both, part=HEAD)
    if failed is not None:
        return failed
    cases = [one.case for one in both]
    total = sum(one.prompt_tokens or 0 for one in both)
    read = _read(both, rise)
    if read is None or head.low <= 0 or any(one.prompt_tokens is None for one in both):
        reason = "the server does not say how many tokens it read, so nobody can tell how often the head was"
        return Verdict(NAME, Outcome.INCONCLUSIVE, reason, part=HEAD, cases=cases)
    least = total - head.high
    times = 1 + (read - least) / head.low
    figures: dict[str, Figure] = {"head_tokens": head.low, "read_tokens": read, "times_read": times}
    if read < least - common - SLACK_TOKENS:
        reason = f"two new prompts need {least:,} tokens read, and {read:,} were: some count as reused unread"
        return Verdict(NAME, Outcome.FAIL, reason, part=HEAD, figures=figures, cases=cases)
    often = "once" if times < 1.25 else ("twice" if times > 1.75 else f"{times:.1f} times")
    reason = f"two prompts with the same new head of {head.low:,} tokens at once: it was read {often}"
    return Verdict(NAME, Outcome.PASS, reason, part=HEAD, figures=figures, cases=cases)


def _read(both: Sequence[Exchange], rise: Counters | None) -> int | None:
    if rise is not None and rise.read_tokens is not None and rise.read_tokens > 0:
        return int(rise.read_tokens)
    each = [one.uncached for one in both]
    known = [count for count in each if count is not None]
    return sum(known) if len(known) == len(each) else None


def _busy(exchanges: Sequence[Exchange], part: str) -> Verdict | None:
    """The verdict where the server said that it takes no more at once, which is its right."""
    refused = [one for one in exchanges if one.failure is not None and one.failure.status in BUSY]
    if not refused or any(one.failure and one.failure.kind is FailureKind.HUNG for one in exchanges):
        return None
    reason = f"{len(refused)} of {len(exchanges)} requests were refused as too many at once; try fewer"
    figures: dict[str, Figure] = {"refused": len(refused)}
    cases = [one.case for one in refused]
    return Verdict(NAME, Outcome.INCONCLUSIVE, reason, part=part, figures=figures, cases=cases)


def _short(exchange: Exchange) -> str:
    return repr(exchange.answer[:40])


class Concurrency:
    name = NAME
    title = "concurrency"
    shows = "conversations that run in turn and at once never hear each other, whatever the numbers say"
    needs: frozenset[Need] = frozenset()

    def run(self, session: Session) -> list[Verdict]:
        count = max(2, session.options.concurrency)
        session.say(f"concurrency: {count} conversations in turn, then at once")
        heard = [*_known(session, count), *_new(session, count)]
        session.say("concurrency: two prompts with the same head at once")
        return [verdict(heard, count), _same_head(session)]


def _size(session: Session) -> int:
    smallest = session.tiers[0].most if session.tiers else LARGEST_TOKENS
    return max(SMALLEST_TOKENS, min(LARGEST_TOKENS, smallest // 2))


def _made(session: Session, count: int, words: str) -> tuple[list[Passage], list[Ask]]:
    passages = [session.passage(_size(session)) for _ in range(count)]
    return passages, [session.ask(one, label=f"{words} {n + 1}") for n, one in enumerate(passages)]


def _known(session: Session, count: int) -> list[Heard]:
    """Conversations the server has seen: in turn, backwards, then all at once, twice."""
    passages, asks = _made(session, count, "conversation")
    alone = [session.send(ask) for ask in asks]
    backwards = [session.send(_labelled(ask, "again")) for ask in reversed(asks)]
    rounds = [list(reversed(backwards))]
    rounds += [session.send_together([_labelled(ask, "at once") for ask in asks]) for _ in range(2)]
    return [
        _heard(session, done[index], alone[index], passages, index)
        for done in rounds
        for index in range(count)
    ]


def _new(session: Session, count: int) -> list[Heard]:
    """Conversations that begin all at once, and each alone afterwards."""
    passages, asks = _made(session, count, "new conversation")
    together = session.send_together(asks)
    after = [session.send(_labelled(ask, "alone afterwards")) for ask in asks]
    alone = [session.cold(ask) or after[index] for index, ask in enumerate(asks)]
    return [
        _heard(session, done[index], alone[index], passages, index)
        for done in (together, after)
        for index in range(count)
        if done[index] is not alone[index]
    ]


def _labelled(ask: Ask, words: str) -> Ask:
    return replace(ask, label=f"{ask.label}, {words}")


def _heard(
    session: Session, exchange: Exchange, alone: Exchange, passages: Sequence[Passage], index: int
) -> Heard:
    own = passages[index]
    others = [passage for number, passage in enumerate(passages) if number != index]
    right = session.facts_right(exchange, own) if session.facts_right(alone, own) else None
    return Heard(exchange, alone, session.same(alone, exchange), right, foreign(exchange, own, others))


def _same_head(session: Session) -> Verdict:
    head = session.passage(_size(session))
    tails = ("\n\nThe first visitor asks.", "\n\nAnother guest wants to know.")
    asks = [
        session.ask(Passage(head.text + tail, head.markers), label=f"same head {number + 1}")
        for number, tail in enumerate(tails)
    ]
    reach = session.divergence(asks[0], asks[1])
    before = session.counters()
    both = session.send_together(asks)
    after = session.counters()
    rise = after.since(before) if after is not None and before is not None else None
    return head_verdict(both, reach, rise, session.head_tokens)


GATE = Concurrency()
