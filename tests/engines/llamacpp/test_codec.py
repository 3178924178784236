"""Blobs survive building and parsing; what does not fit a shape is refused, never guessed."""

from __future__ import annotations

import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headstart.engines.llamacpp import codec
from headstart.engines.llamacpp.codec import CodecError, KvShape, Shape, Tensor
from headstart.prefix.block import Bytes

tensors = st.builds(Tensor, st.integers(0, 40), st.integers(1, 9).map(lambda n: 4 * n))
kv_shapes = st.integers(1, 3).flatmap(
    lambda layers: st.builds(
        KvShape,
        st.lists(tensors, min_size=layers, max_size=layers).map(tuple),
        st.lists(tensors, min_size=layers, max_size=layers).map(tuple),
        st.sampled_from([0, 12]),
    )
)


def rows(random: np.random.Generator, cells: int, width: int) -> Bytes:
    return random.integers(0, 256, (cells, width), np.uint8)


def recurrent_part(random: np.random.Generator, position: int, states: int, layers: int) -> Bytes:
    """A recurrent part as llama.cpp writes it: one cell, `states` tensors of each of two kinds."""
    data = struct.pack("<IiI", 1, position, 0) + struct.pack("<II", 0, layers)
    for _ in range(2 * states):
        width = 4 * int(random.integers(1, 9))
        data += struct.pack("<iQ", 0, width) + random.bytes(width)
    return np.frombuffer(data, np.uint8)


def build(
    shape: Shape, positions: list[np.ndarray], random: np.random.Generator, recurrent: Bytes | None
) -> tuple[Bytes, list[list[Bytes]]]:
    """A blob of random rows, and the rows of each part."""
    size = codec.HEAD_BYTES + (0 if recurrent is None else len(recurrent))
    size += sum(part.nbytes(len(at), 1) for part, at in zip(shape.kv, positions, strict=True))
    buffer = np.empty(size, np.uint8)
    offset = codec.write_head(buffer)
    written = []
    for part, at in zip(shape.kv, positions, strict=True):
        planes = [rows(random, len(at), tensor.row_bytes) for tensor in part.tensors]
        extra = rows(random, len(at), part.extra_bytes)
        half = len(at) // 2
        offset = codec.write_kv(
            buffer,
            offset,
            part,
            at,
            extra=[extra[:half], extra[half:]] if part.extra_bytes else [],
            planes=[[plane[:half], plane[half:]] for plane in planes],
        )
        written.append([extra, *planes])
    if recurrent is not None:
        buffer[offset:] = recurrent
        offset += len(recurrent)
    assert offset == size
    return buffer, written


@given(st.lists(kv_shapes, max_size=2), st.integers(0, 3), st.integers(0, 6), st.integers(0, 2**32))
def test_what_was_built_is_parsed(kv: list[KvShape], states: int, cells: int, seed: int) -> None:
    random = np.random.default_rng(seed)
    shape = Shape(tuple(kv), 2 * states)
    positions = [random.permutation(cells).astype(np.int32) for _ in kv]
    recurrent = recurrent_part(random, cells, states, states + 1) if states else None
    blob, written = build(shape, positions, random, recurrent)

    parsed = codec.parse(blob, shape)

    for part, at, (extra, *planes) in zip(parsed.kv, positions, written, strict=True):
        assert np.array_equal(part.positions, at)
        assert np.array_equal(part.extra, extra)
        assert all(np.array_equal(a, b) for a, b in zip(part.planes, planes, strict=True))
    if recurrent is None:
        assert parsed.recurrent is None
    else:
        assert parsed.recurrent is not None
        assert parsed.recurrent.position == cells
        assert np.array_equal(parsed.recurrent.part, recurrent)


@given(kv_shapes, st.integers(1, 6), st.integers(0, 2**32), st.data())
def test_a_blob_of_another_length_is_refused(kv: KvShape, cells: int, seed: int, data: st.DataObject) -> None:
    shape = Shape((kv,), 0)
    random = np.random.default_rng(seed)
    blob, _ = build(shape, [np.arange(cells, dtype=np.int32)], random, None)
    cut = data.draw(st.integers(0, len(blob) - 1))
    for wrong in (blob[:cut], np.concatenate([blob, blob[:1]])):
        with pytest.raises(CodecError):
            codec.parse(wrong, shape)


@given(kv_shapes, st.integers(2, 6), st.integers(0, 2**32))
def test_a_blob_of_another_shape_is_refused(kv: KvShape, cells: int, seed: int) -> None:
    random = np.random.default_rng(seed)
    blob, _ = build(Shape((kv,), 0), [np.arange(cells, dtype=np.int32)], random, None)
    keys = (Tensor(kv.keys[0].type + 1, kv.keys[0].row_bytes), *kv.keys[1:])
    for other in (Shape((KvShape(keys, kv.values, kv.extra_bytes),), 0), Shape((kv, kv), 0), Shape((kv,), 2)):
        with pytest.raises(CodecError):
            codec.parse(blob, other)


@given(st.lists(kv_shapes, min_size=1, max_size=2), st.integers(0, 2), st.integers(0, 2**32))
def test_the_shape_is_discovered(kv: list[KvShape], states: int, seed: int) -> None:
    extra_bytes = kv[0].extra_bytes
    shape = Shape(tuple(KvShape(part.keys, part.values, extra_bytes) for part in kv), 2 * states)
    random = np.random.default_rng(seed)
    positions = np.arange(5, dtype=np.int32)
    recurrent = recurrent_part(random, 4, states, 3) if states else None
    blob, _ = build(shape, [positions for _ in kv], random, recurrent)
    assert codec.discover(blob, positions) == shape


def test_an_unknown_layout_is_not_guessed() -> None:
    random = np.random.default_rng(0)
    kv = KvShape((Tensor(1, 8),), (Tensor(1, 8),), 0)
    blob, _ = build(Shape((kv,), 0), [np.arange(5, dtype=np.int32)], random, None)
    with pytest.raises(CodecError, match="fits 0 known layouts"):
        codec.discover(np.concatenate([blob, blob[-4:]]), np.arange(5, dtype=np.int32))
    with pytest.raises(CodecError, match="fits 0 known layouts"):
        codec.discover(blob, np.arange(1, 6, dtype=np.int32))


def test_rows_that_do_not_make_up_the_cells_are_refused() -> None:
    kv = KvShape((Tensor(1, 8),), (), 0)
    buffer = np.empty(kv.nbytes(3, 1), np.uint8)
    with pytest.raises(CodecError, match="2 rows were given for 3 cells"):
        codec.write_kv(
            buffer, 0, kv, np.arange(3, dtype=np.int32), extra=[], planes=[[np.zeros((2, 8), np.uint8)]]
        )


def test_an_empty_recurrent_part_keeps_the_tensors() -> None:
    part = recurrent_part(np.random.default_rng(1), 7, 2, 5)
    empty = codec.empty_recurrent(part)
    blob = np.concatenate([np.empty(codec.HEAD_BYTES, np.uint8), empty])
    codec.write_head(blob)
    parsed = codec.parse(blob, Shape((), 4))
    assert parsed.recurrent is not None
    assert parsed.recurrent.position == -1
    assert len(empty) == Shape((), 4).empty_recurrent_bytes
