"""mlx-lm's kinds of cache: what each leaves behind a token, how that is copied out and put back.

A model makes a list of caches, a layer each; some are lists of caches. They are flattened to
*leaves*. KINDS says for each class of leaf what it is: one with a row a token, or one with a state
of the whole past. A row is everything one token left in one array of one leaf: its heads one after
the other, as bytes. State goes in and out in one canonical form, in the order of positions and
without spare room, whatever the cache did before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import mlx.core as mx
from mlx_lm.models.cache import (
    ArraysCache,
    CacheList,
    ChunkedKVCache,
    KVCache,
    QuantizedKVCache,
    RotatingKVCache,
)

from headstart.engines.mlx.window import ChunkCache, WindowCache, aligned
from headstart.prefix.block import Plane

__all__ = ["KINDS", "ArraysLeaf", "RowsLeaf", "UnknownKind", "converted", "describe", "leaves"]


class UnknownKind(Exception):
    """A class of cache that KINDS has no entry for."""


@dataclass(frozen=True)
class Tensor:
    """An array of a leaf. `shape`: without batch and tokens: (heads, width) of a row, all of a state."""

    name: str
    shape: tuple[int, ...]
    dtype: mx.Dtype

    @property
    def nbytes(self) -> int:
        size = self.dtype.size
        for length in self.shape:
            size *= length
        return size


class RowsKind(Protocol):
    """A class of cache with a row a token."""

    def window(self, leaf: Any) -> int:
        """How far it looks back; 0: to the beginning."""
        ...

    def first(self, leaf: Any) -> int:
        """The first token whose row is there."""
        ...

    def arrays(self, leaf: Any) -> list[mx.array | None]:
        """Its arrays (1, heads, tokens, width), tokens from `first` on."""
        ...

    def build(self, like: Any, arrays: Sequence[mx.array], first: int, position: int) -> Any:
        """A cache as `like` at `position` with the rows of tokens `first`..`position`."""
        ...


class _Plain:
    def window(self, leaf: Any) -> int:
        return 0

    def first(self, leaf: Any) -> int:
        return 0

    def arrays(self, leaf: Any) -> list[mx.array | None]:
        return [leaf.keys, leaf.values]

    def build(self, like: Any, arrays: Sequence[mx.array], first: int, position: int) -> Any:
        built = KVCache()
        if position:
            built.keys, built.values = arrays
            built.offset = position
        return built


class _Quantized(_Plain):
    """Packed numbers, scales and biases, of keys and of values."""

    def arrays(self, leaf: Any) -> list[mx.array | None]:
        return [None] * 6 if leaf.keys is None else [*leaf.keys, *leaf.values]

    def build(self, like: Any, arrays: Sequence[mx.array], first: int, position: int) -> Any:
        built: Any = QuantizedKVCache(like.group_size, like.bits)
        if position:
            built.keys, built.values = tuple(arrays[:3]), tuple(arrays[3:])
            built.offset = position
        return built


class _Window(_Plain):
    def window(self, leaf: Any) -> int:
        return int(leaf.max_size)

    def first(self, leaf: Any) -> int:
        return int(leaf.start)

    def build(self, like: Any, arrays: Sequence[mx.array], first: int, position: int) -> Any:
        built = WindowCache(like.max_size)
        if position:
            built.start = aligned(position - like.max_size + 1)
            built.keys, built.values = (_from(array, first, built.start) for array in arrays)
            built.offset = position
        return built


class _Chunked(_Plain):
    def window(self, leaf: Any) -> int:
        return int(leaf.chunk_size)

    def first(self, leaf: Any) -> int:
        return int(leaf.start_position)

    def build(self, like: Any, arrays: Sequence[mx.array], first: int, position: int) -> Any:
        built = ChunkCache(like.chunk_size)
        if position:
            built.start_position = aligned(position - like.chunk_size)
            built.keys, built.values = (_from(array, first, built.start_position) for array in arrays)
            built.offset = position
        return built


def _from(array: mx.array, first: int, start: int) -> mx.array:
    """Rows from `start` on of `array`, whose first row is that of token `first`; zeros, which are masked,
    where `first` lies behind `start`."""
    if first <= start:
        return array[..., start - first :, :]
    return mx.pad(array, [(0, 0), (0, 0), (first - start, 0), (0, 0)])


KINDS: Mapping[type, RowsKind | None] = {
    KVCache: _Plain(),
    QuantizedKVCache: _Quantized(),
    WindowCache: _Window(),
    ChunkCache: _Chunked(),
    ArraysCache: None,
}
"""Class of a leaf to its rows; None: a state of the whole past (recurrent layers)."""


def converted(caches: Sequence[Any], kv_bits: int | None, kv_group: int) -> list[Any]:
    """`caches` as a model made them, empty, with those classes in place of others that KINDS knows."""
    return [_converted(cache, kv_bits, kv_group) for cache in caches]


def _converted(cache: Any, kv_bits: int | None, kv_group: int) -> Any:
    if type(cache) is CacheList:
        return CacheList(*converted(cache.caches, kv_bits, kv_group))
    if type(cache) is RotatingKVCache:
        return WindowCache(cache.max_size)
    if type(cache) is ChunkedKVCache:
        return ChunkCache(cache.chunk_size)
    if type(cache) is KVCache and kv_bits is not None:
        return QuantizedKVCache(kv_group, kv_bits)
    return cache


def leaves(caches: Sequence[Any]) -> Iterator[Any]:
    """The caches that hold something, in order."""
    for cache in caches:
        if type(cache) is CacheList:
            yield from leaves(cache.caches)
        else:
            yield cache


def replaced(caches: Sequence[Any], new: Iterator[Any]) -> list[Any]:
    """`caches` with other leaves, in order."""
    return [
        CacheList(*replaced(cache.caches, new)) if type(cache) is CacheList else next(new) for cache in caches
    ]


@dataclass(frozen=True)
class RowsLeaf:
    """A leaf with a row a token in each of `tensors`. Arrays 0 wide are among them, not among planes."""

    kind: RowsKind
    tensors: tuple[Tensor, ...]
    window: int

    @property
    def planes(self) -> list[Plane]:
        return [Plane(one.name, one.nbytes, self.window) for one in self.tensors if one.nbytes]

    def rows(self, leaf: Any, start: int, stop: int) -> list[mx.array]:
        """Rows start..stop of every plane, (tokens, bytes), not evaluated."""
        first = self.kind.first(leaf)
        return [
            mx.contiguous(array[0, :, start - first : stop - first].swapaxes(0, 1))
            .reshape(stop - start, -1)
            .view(mx.uint8)
            for array, tensor in zip(self.kind.arrays(leaf), self.tensors, strict=True)
            if tensor.nbytes and array is not None
        ]

    def build(self, like: Any, rows: Sequence[mx.array], first: int, position: int) -> Any:
        """A leaf at `position` from its planes' rows first..position."""
        left = iter(rows)
        arrays = [
            self._array(tensor, next(left) if tensor.nbytes else None, position - first)
            for tensor in self.tensors
        ]
        return self.kind.build(like, arrays, first, position)

    @staticmethod
    def _array(tensor: Tensor, rows: mx.array | None, count: int) -> mx.array:
        heads, width = tensor.shape
        if rows is None:
            return mx.zeros((1, heads, count, width), tensor.dtype)
        return mx.contiguous(rows.view(tensor.dtype).reshape(count, heads, width).swapaxes(0, 1))[None]


@dataclass(frozen=True)
class ArraysLeaf:
    """A leaf with a state of the whole past."""

    tensors: tuple[Tensor, ...]

    @property
    def nbytes(self) -> int:
        return sum(tensor.nbytes for tensor in self.tensors)

    def state(self, leaf: Any) -> list[mx.array]:
        """Its arrays as bytes, not evaluated. One that is not made yet is zeros, as the model takes it."""
        return [
            mx.contiguous(array).reshape(-1).view(mx.uint8)
            if array is not None
            else mx.zeros(tensor.nbytes, mx.uint8)
            for array, tensor in zip(leaf.cache, self.tensors, strict=True)
        ]

    def build(self, state: Sequence[mx.array]) -> Any:
        built = ArraysCache(len(self.tensors))
        for number, (data, tensor) in enumerate(zip(state, self.tensors, strict=True)):
            built[number] = data.view(tensor.dtype).reshape(tensor.shape)
        return built


def describe(
    read: Callable[[Sequence[Any], int], None], make: Callable[[], list[Any]]
) -> list[RowsLeaf | ArraysLeaf]:
    """What each leaf is, seen after 1 token and after 5 more. `make`: empty caches; `read`: has the model
    read that many tokens into them. Raises UnknownKind for a class that KINDS does not know, or one whose
    arrays are not as it says."""
    caches = make()
    read(caches, 1)
    before = [_shapes(leaf) for leaf in leaves(caches)]
    read(caches, 5)
    found: list[RowsLeaf | ArraysLeaf] = []
    for number, (leaf, shapes) in enumerate(zip(leaves(caches), before, strict=True)):
        if type(leaf) not in KINDS:
            raise UnknownKind(type(leaf).__name__)
        kind = KINDS[type(leaf)]
        if kind is None:
            if _shapes(leaf) != shapes or any(array is None for array in leaf.cache):
                raise UnknownKind(f"{type(leaf).__name__} whose arrays grow")
            found.append(
                ArraysLeaf(
                    tuple(Tensor(f"{number}.{n}", tuple(a.shape), a.dtype) for n, a in enumerate(leaf.cache))
                )
            )
            continue
        arrays = kind.arrays(leaf)
        if any(array is None or array.ndim != 4 or array.shape[0] != 1 for array in arrays):
            raise UnknownKind(f"{type(leaf).__name__} without rows")
        names = ("k", "v") if len(arrays) == 2 else ("k", "k.scales", "k.biases", "v", "v.scales", "v.biases")
        tensors = tuple(
            Tensor(f"{name}.{number}", (array.shape[1], array.shape[3]), array.dtype)
            for name, array in zip(names, arrays, strict=True)
            if array is not None
        )
        found.append(RowsLeaf(kind, tensors, kind.window(leaf)))
    return found


def _shapes(leaf: Any) -> list[tuple[int, ...] | None]:
    arrays = getattr(leaf, "cache", [])
    return [None if array is None else tuple(array.shape) for array in arrays]
