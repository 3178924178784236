"""Which tokens the engine reads next. Pure: positions in, positions out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

LONG_PREFILL_SHARE = 4
"""One prefill chunk in so many goes to the oldest prefill, so that short ones cannot starve it."""


@dataclass(frozen=True)
class Prefill:
    """A sequence still reading its prompt, as the chunk choice sees it."""

    position: int
    target: int
    stops: tuple[int, ...]
    """Positions after `position` where prefill pauses for a checkpoint, ascending."""


def chunk_end(prefill: Prefill, budget_tokens: int, grid_tokens: int) -> int:
    """Where the next chunk of `prefill` ends: never past a stop, the target or the budget.

    With `grid_tokens` > 0 chunks also end at its absolute multiples, so that a token is always
    read in the same chunk whatever was restored before it (design invariant 16b).
    """
    end = min(prefill.position + budget_tokens, prefill.target)
    if grid_tokens:
        end = min(end, (prefill.position // grid_tokens + 1) * grid_tokens)
    for stop in prefill.stops:
        if prefill.position < stop < end:
            return stop
    return end


def next_prefill(prefills: Sequence[Prefill], turn: int) -> int:
    """Index of the prefill that gets this turn's chunk; `prefills` are in order of arrival.

    The one with least left to read goes first, which keeps the mean time to first token least;
    every LONG_PREFILL_SHARE-th turn goes to the oldest.
    """
    if turn % LONG_PREFILL_SHARE == LONG_PREFILL_SHARE - 1:
        return 0
    return min(range(len(prefills)), key=lambda i: prefills[i].target - prefills[i].position)
