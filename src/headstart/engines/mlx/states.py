"""A sequence's caches as rows and checkpoints, or, where that cannot be, as whole states."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Sequence
from typing import Any

import mlx.core as mx
import numpy as np

from headstart.engines.mlx.kinds import ArraysLeaf, RowsLeaf, UnknownKind, describe, leaves, replaced
from headstart.errors import EngineError
from headstart.prefix.block import Bytes, Plane, RowBytes

__all__ = ["RowStates", "SnapshotStates", "states_of"]

Make = Callable[[], list[Any]]
_HEAD = struct.Struct("<qq")


def _copied(arrays: Sequence[mx.array]) -> list[Bytes]:
    """Evaluated, and in memory of our own."""
    mx.eval(arrays)
    return [np.array(array, copy=True) for array in arrays]


class RowStates:
    """`kinds`: what each leaf is; `make`: empty caches."""

    def __init__(self, kinds: Sequence[RowsLeaf | ArraysLeaf], make: Make) -> None:
        self._kinds = tuple(kinds)
        self._make = make
        rows = [kind for kind in kinds if isinstance(kind, RowsLeaf)]
        self.planes: tuple[Plane, ...] = tuple(plane for kind in rows for plane in kind.planes)
        self.checkpoint_bytes = sum(kind.nbytes for kind in kinds if isinstance(kind, ArraysLeaf))
        self.row_bytes = sum(plane.row_bytes for plane in self.planes)
        self.sample_bytes = self.row_bytes + self.checkpoint_bytes
        self._window = max((plane.window_tokens for plane in self.planes), default=0)

    def first(self, caches: Sequence[Any]) -> int:
        """The first token whose rows are there in all windowed leaves."""
        pairs = zip(self._kinds, leaves(caches), strict=True)
        return max(
            (kind.kind.first(leaf) for kind, leaf in pairs if isinstance(kind, RowsLeaf) and kind.window),
            default=0,
        )

    def rows(self, caches: Sequence[Any], start: int, stop: int) -> RowBytes:
        if start == stop:
            return RowBytes(
                tuple(np.empty((0, plane.row_bytes), np.uint8) for plane in self.planes), sole=True
            )
        found: list[mx.array] = []
        for kind, leaf in zip(self._kinds, leaves(caches), strict=True):
            if isinstance(kind, RowsLeaf):
                found += kind.rows(leaf, start, stop)
        return RowBytes(tuple(_copied(found)), sole=True)

    def checkpoint(self, caches: Sequence[Any], position: int) -> bytes:
        found: list[mx.array] = []
        for kind, leaf in zip(self._kinds, leaves(caches), strict=True):
            if isinstance(kind, ArraysLeaf):
                found += kind.state(leaf)
        return b"".join(array.tobytes() for array in _copied(found))

    def build(self, rows: Sequence[RowBytes], checkpoint: bytes | None, position: int) -> list[Any]:
        """Caches at `position`, above 0, from all rows before it; of windowed planes the last window."""
        joined = RowBytes.join(rows) if rows else RowBytes(())
        mark = _Reader(checkpoint)
        caches = self._make()
        new, plane = [], 0
        for kind, leaf in zip(self._kinds, leaves(caches), strict=True):
            if isinstance(kind, ArraysLeaf):
                new.append(mark.leaf(kind))
                continue
            first = max(0, position - kind.window) if kind.window else 0
            mine = joined.planes[plane : plane + len(kind.planes)]
            plane += len(kind.planes)
            new.append(kind.build(leaf, [mx.array(one[first:position]) for one in mine], first, position))
        mx.eval([leaf.state for leaf in new])
        return replaced(caches, iter(new))

    def cut(
        self,
        caches: Sequence[Any],
        stands: int,
        position: int,
        window_rows: RowBytes | None,
        checkpoint: bytes | None,
    ) -> list[Any]:
        """Caches at `position`, above 0 and not above where `caches` stand, which may be used up."""
        mark = _Reader(checkpoint)
        new, plane = [], 0
        for kind, leaf in zip(self._kinds, leaves(caches), strict=True):
            if isinstance(kind, ArraysLeaf):
                new.append(leaf if position == stands and checkpoint is None else mark.leaf(kind))
                continue
            mine = slice(plane, plane + len(kind.planes))
            plane += len(kind.planes)
            if kind.window and window_rows is not None:
                count = min(kind.window, position)
                given = [mx.array(one[len(one) - count :]) for one in window_rows.planes[mine]]
                new.append(kind.build(leaf, given, position - count, position))
            else:
                leaf.offset = position
                new.append(leaf)
        mx.eval([leaf.state for leaf in new])
        return replaced(caches, iter(new))


class _Reader:
    """Hands out the parts of a checkpoint, leaf by leaf."""

    def __init__(self, checkpoint: bytes | None) -> None:
        self._data = mx.array(np.frombuffer(checkpoint or b"", np.uint8))
        self._at = 0

    def leaf(self, kind: ArraysLeaf) -> Any:
        parts = []
        for tensor in kind.tensors:
            parts.append(self._data[self._at : self._at + tensor.nbytes])
            self._at += tensor.nbytes
        return kind.build(parts)


class SnapshotStates:
    """Whole states, usable at their exact position only: to the cache, a purely recurrent model.

    A snapshot is the position, the length of a JSON text, that text (what each cache calls its state, with
    shape and type in the place of every array), and the arrays' bytes.
    """

    row_bytes = 0
    planes: tuple[Plane, ...] = ()

    def __init__(self, make: Make, sample_bytes: int) -> None:
        self._make = make
        self.sample_bytes = sample_bytes
        self.checkpoint_bytes = _HEAD.size + max(1, sample_bytes)
        """A typical size: a snapshot grows with its sequence."""

    def first(self, caches: Sequence[Any]) -> int:
        return 0

    def rows(self, caches: Sequence[Any], start: int, stop: int) -> RowBytes:
        return RowBytes(())

    def checkpoint(self, caches: Sequence[Any], position: int) -> bytes:
        arrays: list[mx.array] = []
        text = json.dumps([_outline(leaf.state, arrays) for leaf in leaves(caches)]).encode()
        flat = [mx.contiguous(array).reshape(-1).view(mx.uint8) for array in arrays if array.size]
        return _HEAD.pack(position, len(text)) + text + b"".join(array.tobytes() for array in _copied(flat))

    def build(self, rows: Sequence[RowBytes], checkpoint: bytes | None, position: int) -> list[Any]:
        """Raises EngineError where `checkpoint` is not a snapshot taken at `position`."""
        caches = self._make()
        try:
            stands, size = _HEAD.unpack_from(checkpoint or b"")
            if stands != position:
                raise EngineError(f"the snapshot stands at {stands}, expected {position}")
            data = memoryview(checkpoint or b"")[_HEAD.size :]
            reader = _Arrays(data[size:])
            for leaf, outline in zip(leaves(caches), json.loads(bytes(data[:size])), strict=True):
                leaf.state = reader.filled(outline)
        except (struct.error, ValueError, TypeError, KeyError) as error:
            raise EngineError(f"a whole-sequence snapshot is needed, and this is none: {error}") from error
        mx.eval([leaf.state for leaf in leaves(caches)])
        return caches

    def cut(
        self,
        caches: Sequence[Any],
        stands: int,
        position: int,
        window_rows: RowBytes | None,
        checkpoint: bytes | None,
    ) -> list[Any]:
        if checkpoint is None:
            return list(caches)
        return self.build([], checkpoint, position)


_DTYPES = {
    str(dtype): dtype
    for dtype in (
        *(mx.bool_, mx.uint8, mx.uint16, mx.uint32, mx.uint64, mx.int8, mx.int16, mx.int32, mx.int64),
        *(mx.float16, mx.bfloat16, mx.float32, mx.complex64),
    )
}


def _outline(state: Any, arrays: list[mx.array]) -> Any:
    """`state` with each array described; the arrays go to `arrays`. Raises EngineError for what it cannot."""
    if isinstance(state, mx.array):
        arrays.append(state)
        return {"shape": list(state.shape), "dtype": str(state.dtype)}
    if isinstance(state, list | tuple):
        inner = [_outline(one, arrays) for one in state]
        return {"tuple": inner} if isinstance(state, tuple) else inner
    if state is None or isinstance(state, bool | int | float | str):
        return state
    raise EngineError(f"a cache whose state holds a {type(state).__name__} cannot be kept")


class _Arrays:
    """Fills the arrays of an outline in again, one behind the other."""

    def __init__(self, data: memoryview) -> None:
        self._data = np.frombuffer(data, np.uint8)
        self._at = 0

    def filled(self, outline: Any) -> Any:
        if isinstance(outline, list):
            return [self.filled(one) for one in outline]
        if not isinstance(outline, dict):
            return outline
        if "tuple" in outline:
            return tuple(self.filled(one) for one in outline["tuple"])
        dtype, shape = _DTYPES[outline["dtype"]], outline["shape"]
        size = int(np.prod(shape, dtype=np.int64)) * dtype.size
        if self._at + size > len(self._data):
            raise EngineError("the snapshot is cut short")
        part = self._data[self._at : self._at + size]
        self._at += size
        return mx.array(part).view(dtype).reshape(shape) if size else mx.zeros(shape, dtype)


def states_of(
    read: Callable[[Sequence[Any], int], None], make: Make
) -> tuple[RowStates | SnapshotStates, tuple[str, ...]]:
    """How the caches that `make` makes are kept, and what there is to say of it. `read`: see `describe`."""
    try:
        return RowStates(describe(read, make), make), ()
    except UnknownKind as unknown:
        caches = make()
        read(caches, 5)
        size = len(SnapshotStates(make, 0).checkpoint(caches, 5))
        note = f"headstart does not know {unknown}, a kind of cache: whole states are kept, at message ends"
        return SnapshotStates(make, size), (note,)
