"""mlx-lm's caches of layers that look back a limited way, kept in the order of positions.

mlx-lm overwrites the oldest row of a full window in place, so that where a row lies, and in what
order attention sums, depends on how the sequence came to where it is. Here rows stay in order, and
the first one kept lies at a multiple of ALIGN: a restored sequence then computes with the same
numbers at the same places as one that never stopped. Older rows that are still there are masked.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import mlx.core as mx
from mlx_lm.models.cache import ChunkedKVCache, RotatingKVCache

__all__ = ["ALIGN", "ChunkCache", "WindowCache"]

ALIGN = 64
"""Rows kept begin at a multiple of this: more than any vector unit takes at once."""
SLACK = 256
"""Room for so many more rows is made at a time while decoding."""


def aligned(position: int) -> int:
    """The last multiple of ALIGN that is not above `position`."""
    return max(0, position) // ALIGN * ALIGN


@lru_cache(maxsize=4 * ALIGN)
def _last_of(rows: int, window: int, dtype: mx.Dtype) -> mx.array:
    """Of so many rows, the last `window` are seen. While decoding few masks come again and again. Added to
    the scores, 0 and minus infinity give what a mask of truths gives, by one operation less a layer."""
    seen = mx.arange(rows)[None] >= rows - window
    mask = mx.where(seen, mx.array(0, dtype), mx.array(-math.inf, dtype))
    mx.eval(mask)
    return mask


class WindowCache(RotatingKVCache):
    """Keys and values of at least the last `max_size` tokens, in order. `start`: token of the first row."""

    keys: Any
    values: Any

    def __init__(self, max_size: int) -> None:
        super().__init__(max_size=max_size)  # type: ignore[no-untyped-call]
        self.start = 0
        self._before = 0

    @property
    def state(self) -> Any:
        return self.keys, self.values, self.offset, self.max_size, self.start

    @state.setter
    def state(self, state: Any) -> None:
        self.keys, self.values, self.offset, self.max_size, self.start = state
        self._before = self.offset

    def update_and_fetch(self, keys: mx.array, values: mx.array) -> tuple[mx.array, mx.array]:
        count = keys.shape[2]
        first = aligned(self.offset - self.max_size + 1)
        room = 0 if self.keys is None else self.keys.shape[2]
        if self.keys is None or self.offset - self.start + count > room:
            self._move(keys, values, max(self.start, min(first, self._before)), count)
        self._before = self.offset
        at = self.offset - self.start
        self.keys[..., at : at + count, :] = keys
        self.values[..., at : at + count, :] = values
        self.offset += count
        seen = slice(first - self.start, self.offset - self.start)
        return self.keys[..., seen, :], self.values[..., seen, :]

    def _move(self, keys: mx.array, values: mx.array, first: int, count: int) -> None:
        """Rows from `first` on into new memory with room for `count` more. Those of the call before are among
        them: a step of the engine may take two calls, and its rows are copied out after both."""
        kept = self.offset - first
        room = kept + max(count, SLACK if count == 1 else count)
        moved = []
        for old, new in ((self.keys, keys), (self.values, values)):
            batch, heads, _, width = new.shape
            buffer = mx.zeros((batch, heads, room, width), new.dtype)
            if old is not None and kept:
                buffer[..., :kept, :] = old[..., first - self.start : self.offset - self.start, :]
            moved.append(buffer)
        self.keys, self.values = moved
        self.start = first

    def make_mask(self, N: int, window_size: int | None = None, return_array: bool = False) -> Any:  # noqa: N803
        window = min(window_size or self.max_size, self.max_size)
        first = aligned(self.offset - self.max_size + 1)
        if self.offset + N <= window:  # nothing is too old for any of them
            if N == 1:
                return None
            if not return_array:
                return "causal"
        if N == 1:
            return _last_of(self.offset + 1 - first, window, self.keys.dtype)
        query = mx.arange(self.offset, self.offset + N)[:, None]
        key = mx.arange(first, self.offset + N)[None]
        return (key <= query) & (key > query - window)

    def is_trimmable(self) -> bool:
        return False

    def size(self) -> int:
        return min(int(self.offset), int(self.max_size))


class ChunkCache(ChunkedKVCache):
    """Keys and values of at least the last `chunk_size` tokens; `start_position`: token of the first row."""

    keys: Any
    values: Any

    def __init__(self, chunk_size: int) -> None:
        super().__init__(chunk_size)  # type: ignore[no-untyped-call]
        self._before = 0

    def update_and_fetch(self, keys: mx.array, values: mx.array) -> tuple[mx.array, mx.array]:
        self._before = self.offset
        kept: tuple[mx.array, mx.array] = super().update_and_fetch(keys, values)  # type: ignore[no-untyped-call]
        return kept

    def maybe_trim_front(self) -> None:
        first = aligned(min(self.offset - self.chunk_size, self._before))
        if self.keys is not None and first > self.start_position:
            seen = slice(first - self.start_position, self.offset - self.start_position)
            self.keys, self.values = self.keys[..., seen, :], self.values[..., seen, :]
            self.start_position = first
