"""The verdict on a recording: turn by turn what was lost and why, and the sum of it."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from statistics import median
from typing import Protocol

from headstart.blame.causes import (
    BODY_CAUSES,
    FRONT_CAUSES,
    HARD_CAUSES,
    SERVER_CAUSES,
    Context,
    first,
    server_gap,
    shape_only,
    truncated,
)
from headstart.blame.conversations import LIVE, Conversation, Limits, Sorter, Turn, front, turns
from headstart.blame.diff import change
from headstart.blame.exchange import Exchange, Usage
from headstart.blame.finding import Change, Finding, Step
from headstart.blame.generated import as_generated, replayed
from headstart.blame.prompt import Kind


class Below(Protocol):
    """Looks at a turn below its body: at the rendered prompt and its tokens. See `depth`."""

    def inspect(self, context: Context) -> Finding | None:
        """What template and tokenizer do to bodies that only go on."""

    def same(self, context: Context) -> bool:
        """Whether a change of the bodies has no effect once rendered."""

    def place(self, context: Context, finding: Finding) -> Finding:
        """The finding with its place in the rendered prompt, where that can be told."""


# Fewer lost tokens are not worth a word: servers hold back some by design.
SMALL_LOSS_TOKENS = 16
# Shorter reads say more of a server's overhead than of its speed.
_SPEED_TOKENS = 64
# How many reads a judge's idea of the speed goes by.
_SPEED_READS = 200


@dataclass(frozen=True)
class TurnVerdict:
    """`change`: where the body parts from the turn before; None where it only goes on. `finding`: why tokens
    were read again, None where none were, or nobody can tell. `also`: what else is wrong with it.
    `tokens_lost`: read tokens that are not new; `seconds_lost`: these at the server's own reading speed."""

    conversation: str
    turn: Turn
    usage: Usage
    change: Change | None = None
    finding: Finding | None = None
    also: tuple[Finding, ...] = ()
    tokens_lost: int | None = None
    seconds_lost: float | None = None


@dataclass(frozen=True)
class CauseTotal:
    """What one cause cost. None: the server told nothing to count with."""

    cause: str
    turns: int
    tokens_lost: int | None = None
    seconds_lost: float | None = None
    example: Finding | None = field(default=None, repr=False)


def judge(exchanges: Iterable[Exchange], below: Below | None = None) -> list[TurnVerdict]:
    """A verdict for every exchange, in the order of the recording."""
    recorded = list(exchanges)
    speed = reading_speed(recorded)
    verdicts = [
        verdict
        for conversation in turns(recorded)
        for verdict in _of_conversation(conversation, speed, below)
    ]
    return sorted(verdicts, key=lambda verdict: verdict.turn.exchange.number)


class Judge:
    """Verdicts while exchanges come in, for weeks: it looks back as far as `limits` say. What only later
    turns show is told then."""

    def __init__(self, below: Below | None = None, limits: Limits = LIVE) -> None:
        self._below = below
        self._sorter = Sorter(limits)
        self._reads: deque[tuple[int, float]] = deque(maxlen=_SPEED_READS)

    def add(self, exchange: Exchange) -> TurnVerdict:
        """The verdict on an exchange that has come to its end."""
        self._reads.extend(_read_by(exchange))
        name, turn = self._sorter.add(exchange)
        return _verdict(name, turn, self._sorter.known(name), _speed(self._reads), self._below)


def totals(verdicts: Iterable[TurnVerdict]) -> list[CauseTotal]:
    """What each cause cost, the most expensive first."""
    found: defaultdict[str, list[Finding]] = defaultdict(list)
    for verdict in verdicts:
        blamed = [verdict.finding] if verdict.finding is not None else []
        for finding in (*blamed, *(one for one in verdict.also if one.tokens_lost)):
            found[finding.cause].append(finding)
    sums = [_total(cause, group) for cause, group in found.items()]
    return sorted(
        sums, key=lambda one: (one.seconds_lost or 0, one.tokens_lost or 0, one.turns), reverse=True
    )


def reading_speed(exchanges: Iterable[Exchange]) -> float | None:
    """Prompt tokens a second, as this server read them: the median over the recording."""
    return _speed([read for exchange in exchanges for read in _read_by(exchange)])


def _read_by(exchange: Exchange) -> list[tuple[int, float]]:
    """Tokens that were read, and the seconds that took; nothing where that is not told."""
    read, seconds = exchange.usage.read, exchange.timing.prefill or exchange.timing.first_token
    return [(read, seconds)] if read and seconds else []


def _speed(reads: Iterable[tuple[int, float]]) -> float | None:
    told = list(reads)
    long = [read / seconds for read, seconds in told if read >= _SPEED_TOKENS]
    speeds = long or [read / seconds for read, seconds in told]
    return median(speeds) if speeds else None


def _total(cause: str, group: Sequence[Finding]) -> CauseTotal:
    tokens = [one.tokens_lost for one in group if one.tokens_lost is not None]
    seconds = [one.seconds_lost for one in group if one.seconds_lost is not None]
    worst = max(group, key=lambda one: one.tokens_lost or 0)
    return CauseTotal(
        cause, len(group), sum(tokens) if tokens else None, sum(seconds) if seconds else None, worst
    )


def _of_conversation(
    conversation: Conversation, speed: float | None, below: Below | None
) -> Iterable[TurnVerdict]:
    known = [turn for turn in conversation.turns if turn.prompt is not None and turn.answered]
    for turn in (*conversation.turns, *conversation.side):
        yield _verdict(conversation.name, turn, known, speed, below)


def _verdict(
    name: str, turn: Turn, known: Sequence[Turn], speed: float | None, below: Below | None
) -> TurnVerdict:
    context = context_of(turn, known)
    if context is None:
        return TurnVerdict(name, turn, turn.exchange.usage)
    parted, found = verdict_of(context, below)
    blame = found[0] if found else None
    verdict = TurnVerdict(name, turn, turn.exchange.usage, parted, blame, tuple(found[1:]))
    return _counted(verdict, context, speed)


def context_of(turn: Turn, known: Sequence[Turn]) -> Context | None:
    """What detectors may know of a turn; None where it has none before it. `known`: its conversation."""
    before = turn.before
    if before is None or before.prompt is None or turn.prompt is None:
        return None
    return Context(
        exchange=turn.exchange,
        before=before.exchange,
        prompt=turn.prompt,
        before_prompt=before.prompt,
        conversation=tuple(one.exchange for one in known),
        prompts=tuple(one.prompt for one in known if one.prompt and one.number <= turn.number),
        between=turn.between,
        new=turn.number == 1,
    )


def verdict_of(context: Context, below: Below | None = None) -> tuple[Change | None, list[Finding]]:
    """Where the bodies part, and what is to be said of the turn, the first being to blame."""
    parted = change(context.before_prompt, context.prompt)
    if context.new:
        return parted, [_seen(found, context, below) for found in _of_front(parted, context)]
    if parted is not None and _asked_anew(parted):
        return parted, _placed(first(FRONT_CAUSES, parted, context), context, below)
    if parted is not None and parted.after is None:
        parted = None  # It only goes back to where it was before: all of it was read already.
    if parted is None:
        return None, _of_agreeing(context, below)
    if below is not None and below.same(context):
        return parted, _of_no_effect(parted, context)
    found = [_seen(found, context, below) for found in _of_bodies(parted, context)]
    return parted, [*found, *_short_of_it(found, context)]


def _of_agreeing(context: Context, below: Below | None) -> list[Finding]:
    """What is to be said where the bodies only go on."""
    found = first((*HARD_CAUSES, truncated), None, context)
    if found is None and not _small(tokens_lost(context)):
        reply = _of_reply(context)
        found = _seen(reply, context, below) if reply else None
        found = found or (below.inspect(context) if below else None)
    found = found or first(SERVER_CAUSES, None, context)
    return [found] if found else []


def _of_no_effect(parted: Change, context: Context) -> list[Finding]:
    """What is to be said where the bodies differ and the rendered prompts do not."""
    if context.shortfall is None:
        return [shape_only.rendered_alike(parted, context)]
    found = first(SERVER_CAUSES, None, context)
    return [found] if found else []


def _short_of_it(found: Sequence[Finding], context: Context) -> list[Finding]:
    """The server's own part in it: the change comes late, and it went back further than that."""
    token = found[0].token if len(found) == 1 else None
    short = None if token is None else server_gap.short_of(token, context)
    return [short] if short else []


def _placed(found: Finding | None, context: Context, below: Below | None) -> list[Finding]:
    return [_seen(found, context, below)] if found else []


def _seen(found: Finding, context: Context, below: Below | None) -> Finding:
    return found if below is None or found.step is Step.SERVER else below.place(context, found)


def _small(lost: int | None) -> bool:
    """Whether it is known that no more was lost than servers hold back."""
    return lost is not None and lost <= SMALL_LOSS_TOKENS


def _asked_anew(parted: Change) -> bool:
    """Whether the user went back and asked something else: the request ends with the message that differs."""
    before, after = parted.before, parted.after
    if before is None or after is None or before.kind is not Kind.TEXT or after.kind is not Kind.TEXT:
        return False
    ends = parted.after_prompt.pieces[-1].message == after.message
    return ends and before.role == after.role == "user"


def _of_front(parted: Change | None, context: Context) -> list[Finding]:
    """What changed of the front that two conversations could share."""
    if parted is None or parted.index >= len(front(context.prompt)):
        return []
    found = first(FRONT_CAUSES, parted, context)
    return [found] if found else []


def _of_bodies(parted: Change, context: Context) -> list[Finding]:
    found = first(BODY_CAUSES, parted, context)
    # What the server does not read, or reads last, costs nothing to change.
    if found is None or _small(tokens_lost(context)):
        return []
    if found.cause == shape_only.CODE and context.shortfall is not None and not context.server_lost:
        return []
    if _far_short(parted, context):
        hard = first(HARD_CAUSES[1:], None, context)
        return [hard, found] if hard else [found]
    return [found]


def _far_short(parted: Change, context: Context) -> bool:
    """Whether the server reused less than half of what stands before the change, whatever order the template
    has for tools and system."""
    usage, piece = context.exchange.usage, parted.before or parted.after
    if usage.cached is None or not usage.prompt or piece is None or piece.kind in (Kind.TOOL, Kind.SYSTEM):
        return False
    share = (parted.chars_before + parted.char) / max(1, context.prompt.chars)
    return usage.cached < share * usage.prompt / 2


def _of_reply(context: Context) -> Finding | None:
    """What was changed of the turn that the model generated."""
    reply = context.before.reply
    if not replayed(context.before_prompt, context.prompt):
        return None
    generated = as_generated(context.before_prompt, reply)
    parted = change(generated, context.prompt)
    if parted is None or parted.after is None:
        return None
    return first(BODY_CAUSES[1:], parted, replace(context, step=Step.GENERATED))


def tokens_lost(context: Context) -> int | None:
    """Tokens that were read though they, or others in their place, were read or generated before."""
    now, then = context.exchange.usage, context.before.usage
    if now.prompt is None or now.read is None or then.prompt is None:
        return None
    replied = (then.completion or 0) if replayed(context.before_prompt, context.prompt) else 0
    had = then.prompt + replied
    return min(had, max(0, now.read - max(0, now.prompt - had)))


def _counted(blank: TurnVerdict, context: Context, speed: float | None) -> TurnVerdict:
    """The verdict with what it cost. What a second finding is known to have cost is no cost of the first."""
    lost = tokens_lost(context)
    also = tuple(replace(one, seconds_lost=_seconds(one.tokens_lost, speed)) for one in blank.also)
    own = None if lost is None else max(0, lost - sum(one.tokens_lost or 0 for one in also))
    finding = blank.finding and replace(blank.finding, tokens_lost=own, seconds_lost=_seconds(own, speed))
    return replace(blank, finding=finding, also=also, tokens_lost=lost, seconds_lost=_seconds(lost, speed))


def _seconds(tokens: int | None, speed: float | None) -> float | None:
    return tokens / speed if tokens is not None and speed else None
