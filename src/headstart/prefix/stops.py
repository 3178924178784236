"""Where prefill pauses to take a checkpoint of recurrent state, and why there."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum


@dataclass(frozen=True)
class PromptHints:
    """Positions in a prompt, in tokens, at which other prompts are likely to part from it.

    `head_end`: end of system and tools. `message_starts`: first token of each message.
    `body_end`: end of the messages, before the generation suffix.
    """

    head_end: int | None = None
    message_starts: tuple[int, ...] = ()
    body_end: int | None = None


class StopKind(StrEnum):
    """Why prefill pauses for a checkpoint. GRID is scaffolding and is dropped first."""

    HEAD = "head"
    MESSAGE = "message"
    BODY_END = "body_end"
    DIVERGENCE = "divergence"
    PROMPT_END = "prompt_end"
    GRID = "grid"
    FORK = "fork"


@dataclass(frozen=True)
class Stop:
    """Prefill pauses when `position` tokens are read."""

    position: int
    kind: StopKind


IMPORTANCE = (
    StopKind.HEAD,
    StopKind.FORK,
    StopKind.DIVERGENCE,
    StopKind.BODY_END,
    StopKind.MESSAGE,
    StopKind.PROMPT_END,
    StopKind.GRID,
)
"""Where several stops fall on one position the first of these names it."""


def stops(
    *, length: int, restore_at: int, divergence: int, hints: PromptHints, interval: int, grid: int = 0
) -> tuple[Stop, ...]:
    """Stops of a prompt of `length` tokens resumed at `restore_at`: ascending, each in
    restore_at+1 .. length, one a position.

    `interval`: a GRID stop at its every multiple (0: none). `grid` > 0 moves every stop down to
    the multiple of `grid` at or below it, because only there may a canonical prefill pause.
    Hints outside the prompt are ignored.
    """
    chosen: dict[int, StopKind] = {}
    for position, kind in _wanted(length, restore_at, divergence, hints, interval):
        at = position // grid * grid if grid else position
        if restore_at < at <= length:
            present = chosen.get(at, kind)
            chosen[at] = min(present, kind, key=IMPORTANCE.index)
    return tuple(Stop(at, chosen[at]) for at in sorted(chosen))


def _wanted(
    length: int, restore_at: int, divergence: int, hints: PromptHints, interval: int
) -> Iterator[tuple[int, StopKind]]:
    yield divergence, StopKind.DIVERGENCE
    if hints.head_end is not None:
        yield hints.head_end, StopKind.HEAD
    for start in hints.message_starts:
        yield start, StopKind.MESSAGE
    if hints.body_end is not None:
        yield hints.body_end, StopKind.BODY_END
    yield length, StopKind.PROMPT_END
    if interval:
        for position in range((restore_at // interval + 1) * interval, length + 1, interval):
            yield position, StopKind.GRID
