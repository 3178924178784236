"""What a stored entry is worth keeping: greedy dual size frequency (GDSF).

    priority = clock at last use + (reuses + 1/64) x recompute cost / bytes

The clock is the priority of what was evicted last, so what is not used again ages. GDSF is from
Cherkasova, "Improving WWW Proxies Performance with Greedy-Dual-Size-Frequency Caching Policy"
(HP Labs, 1998). Changes: reuses are counted from 0 with a small constant added, so that a stream
of entries that are never used again ages the rest 64 times slower than reused ones do; reuses are
capped, so that nothing lives for ever; and who stores an entry decides what it starts with (a
block that goes on from a reused one, or comes back after its eviction, starts with one reuse).
"""

from __future__ import annotations

from headstart.prefix.stops import StopKind

NEVER_REUSED = 1 / 64
"""Weight of an entry that was stored and not yet used again, against one reuse."""

MOST_HITS = 31
"""Reuses are counted up to here."""

ATTENTION_TOKENS = 8192
"""Position at which attending to what came before costs a token as much as the weights do.
Per layer the weights take about 24 d^2 operations a token and attention 4 d x position, so the
two are equal at 6 d; d is 576 to 5376 in models that run locally."""

STEP_TOKENS = 32
"""A forward pass of one token alone takes about as long as this many tokens of a prefill."""


def recompute_cost(start: int, stop: int) -> float:
    """Cost of reading tokens start..stop again, in tokens at position 0: the sum over the run of
    1 + position / ATTENTION_TOKENS."""
    return (stop - start) * (1 + (start + stop) / (2 * ATTENTION_TOKENS))


def worth(cost: float, nbytes: int, hits: int) -> float:
    """Value of keeping an entry: what it saves a byte, times how likely it is to be used."""
    return (min(hits, MOST_HITS) + NEVER_REUSED) * cost / max(1, nbytes)


def checkpoint_cost(before: int, position: int) -> float:
    """A recurrent checkpoint at `position` saves replaying from the last one below it, at `before`."""
    return recompute_cost(before, position)


def logits_cost(position: int) -> float:
    """Stored end logits save one forward pass of one token."""
    return STEP_TOKENS * recompute_cost(position - 1, position)


def mark_worth(kind: StopKind | None, cost: float, nbytes: int, hits: int) -> float:
    """Value of a checkpoint taken for `kind`, or of logits (None). A GRID checkpoint is
    scaffolding: worth nothing until it was used once."""
    return 0.0 if kind is StopKind.GRID and not hits else worth(cost, nbytes, hits)
