"""What the turns of a conversation tell about its server's cache."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import gcd

from headstart.blame.exchange import Exchange

Pair = tuple[Exchange, Exchange]
_COARSE = 16


def pairs(conversation: Sequence[Exchange]) -> list[Pair]:
    """Every turn with the turn before it."""
    return list(pairwise(conversation))


def calm(pair: Pair) -> bool:
    """Whether the server had nothing else in between."""
    return pair[1].number == pair[0].number + 1


def lost_most(before: Exchange, after: Exchange) -> bool:
    """Whether less than half of the turn before was reused."""
    had, cached = before.usage.prompt, after.usage.cached
    return bool(had) and cached is not None and had is not None and cached < had / 2


def granularity(conversation: Sequence[Exchange]) -> tuple[int, int] | None:
    """A step that all reused lengths are a multiple of, and how much each is short of it (0 or 1)."""
    values = {turn.usage.cached for turn in conversation if turn.usage.cached}
    for short in (0, 1):
        step = gcd(*(value + short for value in values)) if len(values) > 1 else 0
        if step >= _COARSE:
            return step, short
    return None
