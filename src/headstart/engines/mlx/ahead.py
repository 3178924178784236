"""Reading one token ahead, so that the device works while the host chooses, sends and prepares.

After a token has been queued, the likeliest of the next ones is read behind it before its scores are looked
at. Where that token then comes, its scores are there already or under way; where another one comes, the
caches are taken back to where they were. Nobody outside sees the difference: the same graph is computed,
only sooner. mlx_lm.generate does the same with the token it has sampled on the device.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import mlx.core as mx

from headstart.engines.mlx.kinds import leaves

__all__ = ["Ahead", "Queued", "queue", "read_ahead"]

Model = Callable[..., mx.array]
Mark = list[dict[str, Any]]


@dataclass(frozen=True)
class Queued:
    """What reading some tokens gives, being computed: `scores` (vocabulary) after the last of them, and the
    token with the highest one."""

    scores: mx.array
    likeliest: mx.array


@dataclass(frozen=True)
class Ahead:
    """A read of `guess` by caches that were as in `before`; `first`: their first windowed row then."""

    guess: mx.array
    queued: Queued
    before: Mark
    first: int

    def taken_back(self, caches: Sequence[Any]) -> None:
        """`caches` as they were before the guess. Rows behind their end are written over or never seen."""
        for leaf, attributes in zip(leaves(caches), self.before, strict=True):
            vars(leaf).update(attributes)


def queue(model: Model, caches: Sequence[Any], tokens: mx.array) -> Queued:
    """Has `model` begin to read `tokens` (1, n). Of the caches only what the scores need is asked for: naming
    every array of theirs costs a small model 7 % of a token, and the rest comes with the next token, or when
    it is copied out."""
    scores = model(tokens, cache=caches)[0, -1].astype(mx.float32)
    likeliest = mx.argmax(scores)
    mx.async_eval(scores, likeliest)
    return Queued(scores, likeliest)


def read_ahead(model: Model, caches: Sequence[Any], queued: Queued, first: int) -> Ahead:
    """Queues the likeliest token behind `queued`. `first`: the first windowed row that `caches` hold."""
    before = _mark(caches)
    return Ahead(queued.likeliest, queue(model, caches, queued.likeliest.reshape(1, 1)), before, first)


def _mark(caches: Sequence[Any]) -> Mark:
    """What every cache holds. A buffer that is written in place stays the same object, one that is replaced
    by a larger one is kept alive here: either way its rows up to the mark stay as they are."""
    return [
        {name: list(value) if isinstance(value, list) else value for name, value in vars(leaf).items()}
        for leaf in leaves(caches)
    ]
