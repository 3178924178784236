"""One token each of several sequences, read in one pass over the weights.

mlx-lm batches by copying whole caches into one padded array. Here every sequence keeps its caches: the layers
see one batch, and only attention is computed sequence by sequence, each over its own rows. Whether a row of a
larger matrix product has the bits of one computed alone depends on the device; `probe.prove_together` finds
out.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import mlx.core as mx
from mlx_lm.models import base
from mlx_lm.models.cache import ArraysCache, CacheList

from headstart.engines.mlx.kinds import KINDS

__all__ = ["read_together"]


@dataclass(frozen=True)
class _Each:
    """Something of every sequence, in their order."""

    ones: tuple[Any, ...]


class _Rows:
    """One layer's caches with rows, for a single token of each sequence."""

    def __init__(self, caches: Sequence[Any]) -> None:
        self.caches = tuple(caches)

    @property
    def offset(self) -> mx.array:
        return mx.array([cache.offset for cache in self.caches], mx.int32)

    def update_and_fetch(self, keys: mx.array, values: mx.array) -> tuple[_Each, _Each]:
        pairs = [
            cache.update_and_fetch(keys[n : n + 1], values[n : n + 1]) for n, cache in enumerate(self.caches)
        ]
        return _Each(tuple(one for one, _ in pairs)), _Each(tuple(one for _, one in pairs))

    def make_mask(self, *args: Any, **options: Any) -> _Each | None:
        masks = tuple(cache.make_mask(*args, **options) for cache in self.caches)
        return None if all(mask is None for mask in masks) else _Each(masks)


def read_together(model: Any, sequences: Sequence[Sequence[Any]], tokens: mx.array) -> mx.array:
    """Scores (sequences, vocabulary) after one more of `tokens` (sequences) each, not evaluated.

    `sequences`: the caches of each, none of them empty. Raises TypeError for a cache of a class that KINDS
    does not know, and TypeError, ValueError or AttributeError where the model's own code asks more of a cache
    than this gives.
    """
    joined = [_joined(caches) for caches in zip(*sequences, strict=True)]
    with _attention_apart(model):
        scores: mx.array = model(tokens[:, None], cache=joined)[:, -1].astype(mx.float32)
    for cache, parts in zip(joined, zip(*sequences, strict=True), strict=True):
        _hand_back(cache, parts)
    return scores


def _joined(caches: Sequence[Any]) -> Any:
    if type(caches[0]) is CacheList:
        return CacheList(*(_joined(parts) for parts in zip(*(one.caches for one in caches), strict=True)))
    if type(caches[0]) not in KINDS:
        raise TypeError(f"a cache of class {type(caches[0]).__name__}")
    if KINDS[type(caches[0])] is not None:
        return _Rows(caches)
    states: Any = ArraysCache(len(caches[0].cache))
    for number in range(len(states.cache)):
        states[number] = mx.concatenate([one[number] for one in caches])
    return states


def _hand_back(joined: Any, caches: Sequence[Any]) -> None:
    """States of the whole past, which were joined by copying, go back to their sequences."""
    if type(joined) is CacheList:
        for part, parts in zip(joined.caches, zip(*(one.caches for one in caches), strict=True), strict=True):
            _hand_back(part, parts)
    elif type(joined) is ArraysCache:
        arrays: Sequence[Any] = joined.cache
        for number, array in enumerate(arrays):
            for n, one in enumerate(caches):
                one[number] = array[n : n + 1]


@contextmanager
def _attention_apart(model: Any) -> Iterator[None]:
    """While this lasts, the model's files have an attention in place of mlx-lm's that knows _Each."""
    plain = base.scaled_dot_product_attention
    files = {sys.modules[type(module).__module__] for module in model.modules()}
    users = [file for file in files if vars(file).get(plain.__name__) is plain]
    for file in users:
        setattr(file, plain.__name__, _attention)
    try:
        yield
    finally:
        for file in users:
            setattr(file, plain.__name__, plain)


def _attention(  # noqa: PLR0917  as mlx-lm's own
    queries: mx.array, keys: Any, values: Any, cache: Any, scale: float, mask: Any, sinks: Any = None
) -> mx.array:
    """mlx_lm.models.base.scaled_dot_product_attention, one sequence after the other."""
    plain = base.scaled_dot_product_attention
    if not isinstance(keys, _Each):
        return plain(queries, keys, values, cache=cache, scale=scale, mask=mask, sinks=sinks)
    masks = mask.ones if isinstance(mask, _Each) else (mask,) * len(keys.ones)
    ones = zip(keys.ones, values.ones, cache.caches, masks, strict=True)
    return mx.concatenate(
        [
            plain(queries[n : n + 1], key, value, cache=own, scale=scale, mask=its, sinks=sinks)
            for n, (key, value, own, its) in enumerate(ones)
        ]
    )
