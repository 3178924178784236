"""Moves rows and checkpoints between the memory of one context and numpy arrays.

Three operations of llama.cpp make it possible (see `codec` for the bytes):

- a scratch sequence can be given the cells of a range of positions, be copied out and be dropped,
  which leaves the range's own sequence as it was;
- a blob put into the scratch sequence lands in free cells, which can then be given to another sequence;
- with PARTIAL_ONLY the window part and the recurrent part are put in place and the rest stays.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from headstart.engines.llamacpp import codec, ring
from headstart.engines.llamacpp.binding import Context
from headstart.engines.llamacpp.codec import KvCells
from headstart.engines.llamacpp.layout import PartPlanes, StateMap
from headstart.errors import EngineError
from headstart.prefix.block import Bytes, RowBytes

__all__ = ["RowTransfer", "Staging", "Transfer", "WindowRows"]

PIECE_BYTES = 16 << 20
"""Rows go in in pieces of about this size: a bounded buffer that stays warm in the processor's cache."""
LONE_PIECE_BYTES = 128 << 20
"""The same where dropping the scratch goes through all cells (see `_drop_scratch`)."""


@dataclass(frozen=True)
class WindowRows:
    """Rows that follow one another, the first of them that of token `start`; window planes are read."""

    pieces: tuple[RowBytes, ...]
    start: int

    @property
    def stop(self) -> int:
        return self.start + sum(map(len, self.pieces))

    def spans(self, start: int, stop: int) -> list[tuple[tuple[Bytes, ...], slice]]:
        """Where rows start..stop lie: the planes of the pieces that have some of them, and which ones."""
        found = []
        at = self.start
        for piece in self.pieces:
            low, high = max(start, at), min(stop, at + len(piece))
            if low < high:
                found.append((piece.planes, slice(low - at, high - at)))
            at += len(piece)
        return found

    def column(self, plane: int, start: int, stop: int) -> list[Bytes]:
        """One plane's rows start..stop, which must be there."""
        return [planes[plane][rows] for planes, rows in self.spans(start, stop)]


def _zeros(rows: int, width: int) -> Bytes:
    return np.broadcast_to(np.uint8(0), (rows, width))


class Transfer(Protocol):
    """What lanes and the shared context need; also served by whole-sequence snapshots."""

    def rows_out(self, sequence: int, start: int, stop: int) -> RowBytes: ...
    def rows_in(self, sequence: int, rows: Sequence[RowBytes], position: int) -> None: ...
    def partial_in(
        self, sequence: int, position: int, window: WindowRows | None, checkpoint: bytes | None
    ) -> None: ...
    def checkpoint_out(self, sequence: int, position: int) -> bytes: ...


@dataclass
class Staging:
    """The memory blobs are built in: one for all contexts of an engine, kept because fresh memory is slow."""

    buffer: Bytes = field(default_factory=lambda: np.empty(0, np.uint8))

    def space(self, nbytes: int) -> Bytes:
        if len(self.buffer) < nbytes:
            self.buffer = np.empty(nbytes, np.uint8)
        return self.buffer


class RowTransfer:
    """Transfers for one context whose blobs have the shape of `state`.

    `scratch`: a sequence number of the context that is empty between calls. `lone`: the only other
    sequence, in a lane; window rows then go where a cold run has them, and the scratch may be a
    number beyond those that have recurrent state, which spares copying it along.
    """

    def __init__(
        self, context: Context, state: StateMap, staging: Staging, scratch: int, *, lone: int | None
    ) -> None:
        self._context = context
        self._state = state
        self._scratch = scratch
        self._lone = lone
        self._keeps_lone = lone is not None and state.checkpoint_bytes > 0
        self._ring_cells = context.window_cells if lone is not None else 0
        self._staging = staging

    # out

    def rows_out(self, sequence: int, start: int, stop: int) -> RowBytes:
        """Rows start..stop of a sequence, which stays as it is."""
        state = self._state
        if not state.parts or stop <= start:
            return RowBytes(tuple(np.empty((0, plane.row_bytes), np.uint8) for plane in state.planes))
        blob = codec.parse(self._range_out(sequence, start, stop, partial=False), state.shape)
        columns: list[Bytes] = []
        for part, cells in zip(state.parts, blob.kv, strict=True):
            if part.windowed:
                columns.extend(self._window_out(sequence, start, stop, cells))
                continue
            ordered = _in_order(cells, start, stop)
            if state.extra_plane is not None and not columns:
                columns.append(np.ascontiguousarray(ordered.extra))
            columns.extend(ordered.planes)
        return RowBytes(tuple(columns))

    def _range_out(self, sequence: int, start: int, stop: int, *, partial: bool) -> Bytes:
        shape = self._state.partial_shape if partial else self._state.shape
        capacity = codec.HEAD_BYTES + sum(kv.nbytes(stop - start, 1) for kv in shape.kv)
        checkpoint_bytes = 0 if self._lone is not None else self._state.checkpoint_bytes
        capacity += max(shape.empty_recurrent_bytes, checkpoint_bytes)
        self._context.copy_sequence(sequence, self._scratch, start, stop)
        try:
            return self._context.get_state(self._scratch, partial=partial, capacity=capacity)
        finally:
            self._drop_scratch()

    def _window_out(self, sequence: int, start: int, stop: int, cells: KvCells) -> tuple[Bytes, ...]:
        """Window rows start..stop. A blob leaves out what its last token cannot see, so a range
        longer than the window comes out in several blobs, the last tokens first."""
        found = []
        while True:
            if len(cells.positions) == 0:
                raise EngineError(f"window rows {start}..{stop} are no longer in the engine")
            first = int(cells.positions.min())
            found.append(_in_order(cells, first, stop).planes)
            if first <= start:
                break
            stop = first
            blob = self._range_out(sequence, start, stop, partial=True)
            cells = codec.parse(blob, self._state.partial_shape).kv[0]
        if len(found) == 1:
            return found[0]
        return tuple(np.concatenate(column) for column in zip(*reversed(found), strict=True))

    def checkpoint_out(self, sequence: int, position: int) -> bytes:
        """The recurrent part at `position`, where the sequence stands."""
        blob = codec.parse(self._context.get_state(sequence, partial=True), self._state.partial_shape)
        if blob.recurrent is None or blob.recurrent.position != position - 1:
            raise EngineError(f"no recurrent state at position {position}")
        return blob.recurrent.part.tobytes()

    # in

    def rows_in(self, sequence: int, rows: Sequence[RowBytes], position: int) -> None:
        """Gives an empty sequence the rows of tokens 0..position of the full planes."""
        full = self._state.full
        if full is None:
            return
        row_bytes = max(1, self._state.row_bytes(windowed=False))
        piece_bytes = LONE_PIECE_BYTES if self._keeps_lone else PIECE_BYTES
        step = max(1, piece_bytes // row_bytes)
        source = WindowRows(tuple(rows), 0)
        self._context.set_state(sequence, self._piece(source, 0, min(position, step)), partial=False)
        for start in range(step, position, step):
            stop = min(position, start + step)
            self._context.set_state(self._scratch, self._piece(source, start, stop), partial=False)
            self._context.copy_sequence(self._scratch, sequence, start, stop)
            self._drop_scratch()

    def _piece(self, source: WindowRows, start: int, stop: int) -> Bytes:
        """A blob with rows start..stop of the full parts and nothing in the others."""
        state = self._state
        size = codec.HEAD_BYTES + len(state.empty_recurrent)
        size += sum(part.shape.nbytes(0 if part.windowed else stop - start, 1) for part in state.parts)
        buffer = self._staging.space(size)
        offset = codec.write_head(buffer)
        spans = source.spans(start, stop)
        extra = (
            [] if state.extra_plane is None else [planes[state.extra_plane][rows] for planes, rows in spans]
        )
        for part in state.parts:
            positions = np.arange(start, start if part.windowed else stop, dtype=np.int32)
            columns = [[planes[i][rows] for planes, rows in spans] for i in range(part.start, part.stop)]
            offset = codec.write_kv(buffer, offset, part.shape, positions, extra=extra, planes=columns)
        return self._with_recurrent(buffer, offset, state.empty_recurrent)

    def partial_in(
        self, sequence: int, position: int, window: WindowRows | None, checkpoint: bytes | None
    ) -> None:
        """Sets the window part and the recurrent part of a sequence that has its other rows to what
        they are at `position`, and takes out whatever the sequence holds from `position` on.

        Window rows that no later token can see need not be in `window`.
        """
        if self._state.windowed is not None or self._state.checkpoint_bytes:
            self._context.set_state(sequence, self._partial(position, window, checkpoint), partial=True)
        if not self._context.remove(sequence, position):
            raise EngineError(f"llama.cpp cannot cut the sequence at {position}")

    def _partial(self, position: int, window: WindowRows | None, checkpoint: bytes | None) -> Bytes:
        state, part = self._state, self._state.windowed
        recurrent = b""
        if state.checkpoint_bytes:
            recurrent = self._checked(checkpoint, position)
        runs = self._window_runs(position) if part else []
        cells = sum(stop - start for start, stop in runs)
        size = codec.HEAD_BYTES + len(recurrent) + (part.shape.nbytes(cells, 1) if part else 0)
        buffer = self._staging.space(size)
        offset = codec.write_head(buffer)
        if part is not None:
            columns = self._window_columns(part, window, position, runs)
            positions = np.concatenate([np.arange(start, stop, dtype=np.int32) for start, stop in runs])
            extra = [] if state.extra_plane is None else columns.pop()
            offset = codec.write_kv(buffer, offset, part.shape, positions, extra=extra, planes=columns)
        return self._with_recurrent(buffer, offset, recurrent)

    def _checked(self, checkpoint: bytes | None, position: int) -> bytes:
        if checkpoint is None or len(checkpoint) != self._state.checkpoint_bytes:
            size = 0 if checkpoint is None else len(checkpoint)
            raise EngineError(f"checkpoint has {size} bytes, expected {self._state.checkpoint_bytes}")
        stands = int.from_bytes(checkpoint[4:8], "little", signed=True) + 1
        if stands != position:
            raise EngineError(f"checkpoint stands at {stands}, expected {position}")
        return checkpoint

    def _window_runs(self, position: int) -> list[tuple[int, int]]:
        """Positions of the window cells in their order: in a lane all of the ring, else only the window,
        wherever there is room."""
        if self._ring_cells:
            return ring.runs(position, self._ring_cells)
        return [(max(0, position - self._state.window_tokens), position)]

    def _window_columns(
        self, part: PartPlanes, window: WindowRows | None, position: int, runs: list[tuple[int, int]]
    ) -> list[list[Bytes]]:
        """Rows of each plane of the window part, run by run; the extra plane's last, where there is one."""
        low = max(0, position - self._state.window_tokens)
        if window is None or window.start > low or window.stop < position:
            raise EngineError(f"the window rows {low}..{position} are missing")
        planes = list(range(part.start, part.stop))
        if self._state.extra_plane is not None:
            planes.append(self._state.extra_plane)
        return [
            [chunk for run in runs for chunk in _seen(window, plane, width, run, (low, position))]
            for plane, width in ((plane, self._state.planes[plane].row_bytes) for plane in planes)
        ]

    def _with_recurrent(self, buffer: Bytes, offset: int, recurrent: bytes) -> Bytes:
        stop = offset + len(recurrent)
        buffer[offset:stop] = np.frombuffer(recurrent, np.uint8)
        return buffer[:stop]

    def _drop_scratch(self) -> None:
        """Empties the scratch sequence. In a lane of a recurrent model its number is beyond those that
        have recurrent state, so llama.cpp refuses to remove it; keeping only the other sequence works,
        but costs time for every cell that one has."""
        if self._lone is not None and self._keeps_lone:
            self._context.keep_only(self._lone)
        else:
            self._context.remove(self._scratch)


def _seen(
    window: WindowRows, plane: int, width: int, run: tuple[int, int], seen: tuple[int, int]
) -> list[Bytes]:
    """A run of one plane's rows: those in `seen`, and zeros for the others, which are masked."""
    (start, stop), (low, high) = run, seen
    first, last = min(max(start, low), stop), max(min(stop, high), start)
    if first >= last:
        return [_zeros(stop - start, width)]
    middle = window.column(plane, first, last)
    return [_zeros(first - start, width), *middle, _zeros(stop - last, width)]


def _in_order(cells: KvCells, start: int, stop: int) -> KvCells:
    """The cells sorted by position, which must be start..stop. Copies nothing where they lie so."""
    expected = np.arange(start, stop, dtype=np.int32)
    if np.array_equal(cells.positions, expected):
        return cells
    order = np.argsort(cells.positions, kind="stable")
    if not np.array_equal(cells.positions[order], expected):
        raise EngineError(f"rows {start}..{stop} are not all in the engine")
    return KvCells(expected, cells.extra[order], tuple(plane[order] for plane in cells.planes))
