"""llama.cpp's sequence state as bytes: parsing it into planes and building it from planes.

The format is that of `llama_state_seq_get_data_ext` (llama.cpp, `llama_context::state_seq_*`,
`llama_kv_cache::state_write`, `llama_memory_recurrent::state_write`), little-endian and packed:

    blob       u32 magic, i32 sequence, parts
    KV part    u32 streams (= 1), u32 cells; nothing more where cells = 0; else
               cells x { i32 position, u32 n, `extra_bytes`, n x i32 sequence },
               u32 transposed (= 0), u32 layers,
               layers x { i32 type, u64 row bytes, cells x row } for the keys, then for the values
    recurrent  u32 cells (0 or 1), cells x { i32 position, u32 n (= 0) }, u32 transposed (= 0), u32 layers,
               k x { i32 type, u64 row bytes, cells x row } for the convolution states, then k for the others

The extra bytes of a cell are i32 x, i32 y, i32 token in models with M-RoPE; others have none.
Sliding-window models have two KV parts: layers with full attention, then layers with a window.
The recurrent part comes last. Nothing in a blob says which parts it has or how many extra bytes a
cell has: that is its `Shape`, found by `discover` from a blob whose positions are known.
"""

from __future__ import annotations

import itertools
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from headstart.errors import EngineError
from headstart.prefix.block import Bytes

__all__ = ["Blob", "CodecError", "KvCells", "KvShape", "Recurrent", "Shape", "Tensor", "discover", "parse"]

MAGIC = 0xAF143CD8
HEAD_BYTES = 8
EXTRA_BYTES = (0, 12)
TENSOR_HEAD = struct.Struct("<iQ")
Positions = npt.NDArray[np.int32]


class CodecError(EngineError):
    """A blob that is not laid out as expected."""


@dataclass(frozen=True)
class Tensor:
    """One tensor of one layer: ggml type number and bytes a token."""

    type: int
    row_bytes: int


@dataclass(frozen=True)
class KvShape:
    """What one KV part holds for every token: keys and values of its layers, extra bytes a cell.

    `values` is empty where the model keeps none (multi-head latent attention).
    """

    keys: tuple[Tensor, ...]
    values: tuple[Tensor, ...]
    extra_bytes: int

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        return self.keys + self.values

    def nbytes(self, cells: int, sequences: int) -> int:
        """Bytes of this part in a blob, for cells that belong to `sequences` sequences each."""
        if cells == 0:
            return 8
        meta = 8 + self.extra_bytes + 4 * sequences
        rows = sum(TENSOR_HEAD.size + cells * tensor.row_bytes for tensor in self.tensors)
        return 8 + cells * meta + 8 + rows


@dataclass(frozen=True)
class Shape:
    """The parts a model's blob has. `recurrent_tensors`: tensors in the recurrent part, 0 for no part."""

    kv: tuple[KvShape, ...]
    recurrent_tensors: int

    @property
    def empty_recurrent_bytes(self) -> int:
        """Size of a recurrent part without cells."""
        return 12 + TENSOR_HEAD.size * self.recurrent_tensors if self.recurrent_tensors else 0


@dataclass(frozen=True)
class KvCells:
    """The cells of a KV part in the order of the blob; planes are views, keys then values."""

    positions: Positions
    extra: Bytes
    planes: tuple[Bytes, ...]


@dataclass(frozen=True)
class Recurrent:
    """The recurrent part: `position` of the last token read, -1 for none, and the part as it stands."""

    position: int
    part: Bytes


@dataclass(frozen=True)
class Blob:
    kv: tuple[KvCells, ...]
    recurrent: Recurrent | None


class _Reader:
    """A position in a blob that only moves forward and never past its end."""

    def __init__(self, data: Bytes) -> None:
        self.data = data
        self.offset = 0

    def take(self, nbytes: int) -> Bytes:
        if nbytes < 0 or self.offset + nbytes > len(self.data):
            raise CodecError(f"state ends at byte {len(self.data)}, expected {nbytes} more at {self.offset}")
        part = self.data[self.offset : self.offset + nbytes]
        self.offset += nbytes
        return part

    def u32(self) -> int:
        return int(self.take(4).view("<u4")[0])

    def tensor(self) -> Tensor:
        kind, row_bytes = TENSOR_HEAD.unpack(self.take(TENSOR_HEAD.size).tobytes())
        return Tensor(kind, row_bytes)


def _expect(what: str, found: int, expected: int) -> None:
    if found != expected:
        raise CodecError(f"{what} is {found} in the state, expected {expected}")


def _read_cells(reader: _Reader, cells: int, extra_bytes: int) -> tuple[Positions, Bytes]:
    first = reader.data[reader.offset + 4 : reader.offset + 8]
    sequences = int(np.frombuffer(first.tobytes().ljust(4, b"\0"), "<u4")[0])
    if sequences > 1:
        raise CodecError(f"a cell belongs to {sequences} sequences, expected one")
    width = 8 + extra_bytes + 4 * sequences
    meta = reader.take(cells * width).reshape(cells, width)
    numbers = np.ascontiguousarray(meta[:, :8]).view("<i4")
    if not (numbers[:, 1] == sequences).all():
        raise CodecError("cells belong to different numbers of sequences")
    return numbers[:, 0].astype(np.int32), meta[:, 8 : 8 + extra_bytes]


def _read_kv(reader: _Reader, shape: KvShape) -> KvCells:
    _expect("number of streams", reader.u32(), 1)
    cells = reader.u32()
    if cells == 0:
        empty = tuple(np.empty((0, tensor.row_bytes), np.uint8) for tensor in shape.tensors)
        return KvCells(np.empty(0, np.int32), np.empty((0, shape.extra_bytes), np.uint8), empty)
    positions, extra = _read_cells(reader, cells, shape.extra_bytes)
    _expect("transposed values", reader.u32(), 0)
    _expect("number of layers", reader.u32(), len(shape.keys))
    planes = []
    for tensor in shape.tensors:
        found = reader.tensor()
        if found != tensor:
            raise CodecError(f"tensor is {found} in the state, expected {tensor}")
        planes.append(reader.take(cells * tensor.row_bytes).reshape(cells, tensor.row_bytes))
    return KvCells(positions, extra, tuple(planes))


def _read_recurrent(reader: _Reader) -> tuple[Recurrent, int]:
    """The recurrent part, which reaches to the end of the blob, and its number of tensors."""
    start = reader.offset
    cells = reader.u32()
    if cells > 1:
        raise CodecError(f"recurrent part has {cells} cells, expected one")
    position = -1
    if cells:
        position = reader.u32()
        _expect("sequences of the recurrent cell", reader.u32(), 0)
    _expect("transposed recurrent state", reader.u32(), 0)
    layers = reader.u32()
    tensors = 0
    while reader.offset < len(reader.data):
        reader.take(cells * reader.tensor().row_bytes)
        tensors += 1
    if tensors % 2 or tensors > 2 * layers:
        raise CodecError(f"recurrent part has {tensors} tensors for {layers} layers")
    return Recurrent(position, reader.data[start:]), tensors


def parse(data: Bytes, shape: Shape) -> Blob:
    """The cells and planes of a blob, as views into `data`. Raises CodecError unless all of it is used."""
    reader = _Reader(data)
    _expect("magic number", reader.u32(), MAGIC)
    reader.take(4)
    kv = tuple(_read_kv(reader, part) for part in shape.kv)
    recurrent = None
    if shape.recurrent_tensors:
        recurrent, tensors = _read_recurrent(reader)
        _expect("number of recurrent tensors", tensors, shape.recurrent_tensors)
    if reader.offset != len(data):
        raise CodecError(f"{len(data) - reader.offset} bytes of the state are left over")
    return Blob(kv, recurrent)


def _probe_kv(reader: _Reader, extra_bytes: int, has_values: bool, positions: Positions) -> KvShape:
    _expect("number of streams", reader.u32(), 1)
    _expect("number of cells", reader.u32(), len(positions))
    found, _ = _read_cells(reader, len(positions), extra_bytes)
    if not np.array_equal(found, positions):
        raise CodecError("positions are not those of the probe")
    _expect("transposed values", reader.u32(), 0)
    layers = reader.u32()
    tensors = []
    for _ in range(layers * (2 if has_values else 1)):
        tensor = reader.tensor()
        if not 0 <= tensor.type < 256:
            raise CodecError(f"tensor type {tensor.type} is unknown")
        reader.take(len(positions) * tensor.row_bytes)
        tensors.append(tensor)
    return KvShape(tuple(tensors[:layers]), tuple(tensors[layers:]), extra_bytes)


def _candidates() -> Iterator[tuple[int, tuple[bool, ...], bool]]:
    for parts, recurrent, extra_bytes in itertools.product((0, 1, 2), (False, True), EXTRA_BYTES):
        if parts == 0 and (extra_bytes or not recurrent):
            continue
        for has_values in itertools.product((True, False), repeat=parts):
            yield extra_bytes, has_values, recurrent


def discover(data: Bytes, positions: Positions) -> Shape:
    """The shape of a blob whose cells hold exactly `positions`.

    Every known combination of parts is tried; one must use the blob to its last byte. Raises
    CodecError where none does, or more than one.
    """
    found: set[Shape] = set()
    for extra_bytes, has_values, has_recurrent in _candidates():
        reader = _Reader(data)
        try:
            _expect("magic number", reader.u32(), MAGIC)
            reader.take(4)
            kv = tuple(_probe_kv(reader, extra_bytes, values, positions) for values in has_values)
            tensors = 0
            if has_recurrent:
                recurrent, tensors = _read_recurrent(reader)
                _expect("recurrent position", recurrent.position, int(positions[-1]))
            if reader.offset == len(data) and bool(tensors) == has_recurrent:
                found.add(Shape(kv, tensors))
        except CodecError:
            continue
    if len(found) != 1:
        raise CodecError(f"state of {len(data)} bytes fits {len(found)} known layouts, expected one")
    return found.pop()


def write_head(buffer: Bytes) -> int:
    """Writes what every blob starts with; the offset after it."""
    struct.pack_into("<Ii", buffer.data, 0, MAGIC, 0)
    return HEAD_BYTES


def write_kv(
    buffer: Bytes,
    offset: int,
    shape: KvShape,
    positions: Positions,
    *,
    extra: Sequence[Bytes],
    planes: Sequence[Sequence[Bytes]],
) -> int:
    """Writes a KV part for one sequence; the offset after it.

    `planes` has, for each tensor, arrays (tokens, row bytes) that follow one another and make up
    `positions`; `extra` likewise, and is empty where cells have no extra bytes.
    """
    cells = len(positions)
    struct.pack_into("<II", buffer.data, offset, 1, cells)
    offset += 8
    if cells == 0:
        return offset
    width = 12 + shape.extra_bytes
    meta = buffer[offset : offset + cells * width].reshape(cells, width)
    meta[:, :4] = np.ascontiguousarray(positions, dtype="<i4").view(np.uint8).reshape(cells, 4)
    meta[:, 4:8] = (1, 0, 0, 0)
    meta[:, 8 + shape.extra_bytes :] = 0
    if shape.extra_bytes:
        _fill(meta[:, 8 : 8 + shape.extra_bytes], extra)
    offset += cells * width
    struct.pack_into("<II", buffer.data, offset, 0, len(shape.keys))
    offset += 8
    for tensor, chunks in zip(shape.tensors, planes, strict=True):
        TENSOR_HEAD.pack_into(buffer.data, offset, tensor.type, tensor.row_bytes)
        offset += TENSOR_HEAD.size
        nbytes = cells * tensor.row_bytes
        _fill(buffer[offset : offset + nbytes].reshape(cells, tensor.row_bytes), chunks)
        offset += nbytes
    return offset


def _fill(target: Bytes, chunks: Sequence[Bytes]) -> None:
    row = 0
    for chunk in chunks:
        target[row : row + len(chunk)] = chunk
        row += len(chunk)
    if row != len(target):
        raise CodecError(f"{row} rows were given for {len(target)} cells")


def empty_recurrent(part: Bytes) -> Bytes:
    """A recurrent part without cells, with the layers and tensors of `part`, which has one."""
    reader = _Reader(part)
    _expect("recurrent cells", reader.u32(), 1)
    reader.take(8)
    pieces = [np.zeros(4, np.uint8), reader.take(8)]
    while reader.offset < len(part):
        head = reader.take(TENSOR_HEAD.size)
        pieces.append(head)
        reader.take(TENSOR_HEAD.unpack(head.tobytes())[1])
    return np.concatenate(pieces)
