"""The form on disk: read by the standard library of that name, and every byte of it is checked."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors
import safetensors.numpy
from blake3 import blake3
from hypothesis import given
from hypothesis import strategies as st

from headstart.prefix.blockfile import (
    ALIGN,
    CHECKSUM_BYTES,
    FORMAT,
    LENGTH_BYTES,
    MAX_HEADER_BYTES,
    Array,
    BlockFileError,
    Damage,
    EntryKind,
    Head,
    decode,
    decode_head,
    encode,
    file_bytes,
    plane_tensors,
)
from headstart.prefix.keys import chain_key, token_bytes
from headstart.prefix.tokens import token_run

HEAD = Head(EntryKind.BLOCK, b"n" * 48, b"p" * 32, bytes(token_bytes(token_run([7, 8, 9]))), 2, True)
PLANES: dict[str, Array] = {
    "plane.k": np.arange(12, dtype=np.uint8).reshape(3, 4),
    "plane.v": np.arange(6, dtype=np.uint8).reshape(3, 2),
}
CHECKPOINT = Head(EntryKind.CHECKPOINT, b"n" * 48, b"p" * 32, HEAD.tokens, 2, False, "message")
LOGITS = Head(EntryKind.LOGITS, b"n" * 48, b"p" * 32, HEAD.tokens, 2)
CASES = {
    "block": (HEAD, PLANES),
    "checkpoint": (CHECKPOINT, {"state": np.arange(40, dtype=np.uint8)}),
    "logits": (LOGITS, {"logits": np.linspace(-3, 3, 11, dtype=np.float32)}),
    "no rows": (HEAD, {"plane.k": np.zeros((3, 0), np.uint8)}),
}


def whole(head: Head, tensors: dict[str, Array]) -> np.ndarray:  # type: ignore[type-arg]
    return np.frombuffer(b"".join(bytes(part) for part in encode(head, tensors)), np.uint8)


def same(a: dict[str, Array], b: dict[str, Array]) -> bool:
    return a.keys() == b.keys() and all(
        a[name].dtype == b[name].dtype and a[name].shape == b[name].shape and (a[name] == b[name]).all()
        for name in a
    )


@pytest.mark.parametrize("name", CASES)
def test_what_is_read_is_what_was_written(name: str) -> None:
    head, tensors = CASES[name]
    data = whole(head, tensors)
    read, arrays = decode(data)
    assert read == head
    assert (arrays.pop("tokens") == [7, 8, 9]).all()
    assert same(arrays, tensors)
    assert decode_head(data)[0] == head


@pytest.mark.parametrize("name", CASES)
def test_the_safetensors_package_reads_it(name: str) -> None:
    head, tensors = CASES[name]
    data = whole(head, tensors)
    arrays = safetensors.numpy.load(data.tobytes())
    assert (arrays.pop("tokens") == [7, 8, 9]).all()
    assert same(arrays, tensors)
    assert int.from_bytes(data[:LENGTH_BYTES].tobytes(), "little") % ALIGN == ALIGN - LENGTH_BYTES


def test_the_safetensors_package_reads_the_metadata(tmp_path: Path) -> None:
    path = tmp_path / "entry.safetensors"
    path.write_bytes(whole(*CASES["checkpoint"]).tobytes())
    with safetensors.safe_open(path, "np") as file:
        metadata = file.metadata()
    assert metadata["format"] == FORMAT
    assert (metadata["kind"], metadata["stop"], metadata["level"]) == ("checkpoint", "message", "2")
    state = np.arange(40, dtype=np.uint8)
    assert json.loads(metadata["checksums"])["state"] == blake3(state.tobytes()).digest(16).hex()


@pytest.mark.parametrize("name", CASES)
def test_every_bit_of_a_file_is_checked(name: str) -> None:
    data = whole(*CASES[name]).copy()
    for at in range(len(data)):
        for bit in range(8):
            data[at] ^= 1 << bit
            with pytest.raises(BlockFileError) as caught:
                decode(data)
            assert caught.value.damage is Damage.CORRUPT
            data[at] ^= 1 << bit
    decode(data)


def test_the_tensor_at_fault_is_named() -> None:
    data = whole(HEAD, PLANES).copy()
    end = len(data)
    for offset, name in ((end - 1, "plane.v"), (end - 7, "plane.k"), (end - 19, "tokens")):
        data[offset] ^= 1
        with pytest.raises(BlockFileError, match=name) as caught:
            decode(data)
        assert caught.value.tensor == name
        data[offset] ^= 1


def test_every_truncation_and_every_excess_is_found() -> None:
    data = whole(HEAD, PLANES)
    for length in range(len(data)):
        with pytest.raises(BlockFileError) as caught:
            decode(data[:length])
        assert caught.value.damage is Damage.CORRUPT
    with pytest.raises(BlockFileError, match="its header says"):
        decode(np.concatenate([data, np.zeros(1, np.uint8)]))


def test_a_file_of_another_version_is_told_from_a_damaged_one() -> None:
    data = other_version(whole(HEAD, PLANES).tobytes())
    with pytest.raises(BlockFileError, match="headstart-state-9") as caught:
        decode(np.frombuffer(data, np.uint8))
    assert caught.value.damage is Damage.UNREADABLE_VERSION
    flipped = data.replace(b"headstart-state-9", b"headstart-state-8")
    with pytest.raises(BlockFileError) as caught:
        decode(np.frombuffer(flipped, np.uint8))
    assert caught.value.damage is Damage.CORRUPT


def other_version(data: bytes) -> bytes:
    """`data` as a later headstart would write it: another format, its header's checksum right."""
    length = int.from_bytes(data[:LENGTH_BYTES], "little")
    text = data[LENGTH_BYTES : LENGTH_BYTES + length].replace(FORMAT.encode(), b"headstart-state-9")
    before = json.loads(text)["__metadata__"]["header"].encode()
    digest = blake3(text.replace(before, b"0" * 2 * CHECKSUM_BYTES)).digest(CHECKSUM_BYTES).hex().encode()
    return data[:LENGTH_BYTES] + text.replace(before, digest) + data[LENGTH_BYTES + length :]


@pytest.mark.parametrize("text", [b"[]", b"{}", b'{"__metadata__":3}', b"\xff", b"[" * 100_000, b"3"])
def test_a_header_that_is_none(text: bytes) -> None:
    data = len(text).to_bytes(LENGTH_BYTES, "little") + text
    with pytest.raises(BlockFileError, match="header") as caught:
        decode(np.frombuffer(data, np.uint8))
    assert caught.value.damage is Damage.CORRUPT


Change = Callable[[dict[str, Any]], object]


def with_header(data: bytes, change: Change) -> np.ndarray:  # type: ignore[type-arg]
    """`data` with another header, whose checksum is right: what damage never makes, but malice may."""
    length = int.from_bytes(data[:LENGTH_BYTES], "little")
    header = json.loads(data[LENGTH_BYTES : LENGTH_BYTES + length])
    zeros = "0" * 2 * CHECKSUM_BYTES
    header["__metadata__"]["header"] = zeros
    change(header)
    text = json.dumps(header, separators=(",", ":")).encode()
    digest = blake3(text).digest(CHECKSUM_BYTES).hex()
    text = text.replace(f'"header":"{zeros}"'.encode(), f'"header":"{digest}"'.encode())
    return np.frombuffer(
        len(text).to_bytes(LENGTH_BYTES, "little") + text + data[LENGTH_BYTES + length :], np.uint8
    )


def tensor(name: str, **fields: object) -> Change:
    return lambda header: header[name].update(fields)


def metadata(**fields: object) -> Change:
    return lambda header: header["__metadata__"].update(fields)


def without(field: str) -> Change:
    return lambda header: header["__metadata__"].pop(field)


FIELDS = ("kind", "namespace", "parent", "level", "canonical", "stop", "checksums")
NO_SENSE: dict[str, Change] = {
    **{f"without {field}": without(field) for field in FIELDS},
    **{f"{field} no text": metadata(**{field: []}) for field in FIELDS if field != "canonical"},
    "no tokens": lambda header: header.pop("tokens"),
    "no field of a tensor": lambda header: header["plane.v"].pop("shape"),
    "a list for a tensor": lambda header: header.update({"plane.v": []}),
    "unknown kind": metadata(kind="row"),
    "level below 0": metadata(level="-1"),
    "level of 100 digits": metadata(level="1" * 100),
    "half a character": metadata(stop="\ud800"),
    "deep checksums": metadata(checksums="[" * 100_000),
    "no checksums": metadata(checksums="{}"),
    "checksum of the tokens alone": lambda header: metadata(
        checksums=json.dumps({"tokens": json.loads(header["__metadata__"]["checksums"])["tokens"]})
    )(header),
    "unknown type": tensor("plane.v", dtype="F64"),
    "type that is none": tensor("plane.v", dtype=[]),
    "other shape": tensor("plane.k", shape=[3, 3]),
    "endless shape": tensor("plane.k", shape=[float("inf")]),
    "shape below 0": tensor("plane.k", shape=[-1, -12]),
    "too many axes": tensor("plane.k", shape=[1] * 70 + [12]),
    "begins before the tensors": tensor("plane.k", data_offsets=[-5, 7]),
    "begins before the file": tensor("tokens", data_offsets=[-(10**6), 12 - 10**6]),
    "ends behind the file": tensor("plane.v", data_offsets=[10**30, 10**30 + 6]),
    "tokens behind the file": tensor("tokens", data_offsets=[10**30, 10**30 + 12]),
}


@pytest.mark.parametrize("name", NO_SENSE)
def test_a_whole_header_that_makes_no_sense_is_damage(name: str) -> None:
    data = with_header(whole(HEAD, PLANES).tobytes(), NO_SENSE[name])
    with pytest.raises(BlockFileError) as caught:
        decode(data)
    assert caught.value.damage is Damage.CORRUPT


def test_a_checksum_that_is_missing_is_wrong() -> None:
    """Of the tokens, in the head too."""
    data = with_header(whole(HEAD, PLANES).tobytes(), NO_SENSE["no checksums"])
    with pytest.raises(BlockFileError, match="checksum of tensor tokens"):
        decode_head(data)


def test_the_head_alone_has_its_tokens_checked() -> None:
    data = whole(HEAD, PLANES).copy()
    data[len(data) - 19] ^= 1
    with pytest.raises(BlockFileError, match="checksum of tensor tokens") as caught:
        decode_head(data)
    assert caught.value.tensor == "tokens"
    with pytest.raises(BlockFileError, match="ends inside tensor tokens") as caught:
        decode_head(data[: len(data) - 22])
    assert caught.value.tensor == "tokens"


def test_without_the_tensors_checksums_all_else_is_checked() -> None:
    data = whole(HEAD, PLANES).copy()
    data[len(data) - 1] ^= 1
    assert decode(data, verify=False)[0] == HEAD
    for length in range(len(data)):
        with pytest.raises(BlockFileError):
            decode(data[:length], verify=False)
    data[len(data) - 19] ^= 1
    with pytest.raises(BlockFileError, match="tensor tokens"):
        decode(data, verify=False)


def test_a_header_beyond_all_bounds_is_not_looked_at() -> None:
    data = np.zeros(MAX_HEADER_BYTES + 100, np.uint8)
    data[:LENGTH_BYTES] = np.frombuffer((MAX_HEADER_BYTES + 1).to_bytes(LENGTH_BYTES, "little"), np.uint8)
    with pytest.raises(BlockFileError, match="does not fit"):
        decode(data)


def test_planes_have_the_names_of_their_layout() -> None:
    planes = [*PLANES.values()]
    assert [name for name, _ in plane_tensors(["k", "v"], planes)] == ["plane.k", "plane.v"]
    with pytest.raises(ValueError, match="shorter"):
        list(plane_tensors(["k", "v"], planes[:1]))


def test_keys_tell_kinds_tokens_and_parents_apart() -> None:
    assert HEAD.key == chain_key(HEAD.parent, HEAD.tokens)
    other_parent = Head(EntryKind.BLOCK, HEAD.namespace, b"q" * 32, HEAD.tokens, 2)
    other_tokens = Head(EntryKind.BLOCK, HEAD.namespace, HEAD.parent, HEAD.tokens[:-4], 2)
    marks = [mark._replace(parent=b"q" * 32) for mark in (CHECKPOINT, LOGITS)]
    keys = {head.key for head in (HEAD, CHECKPOINT, LOGITS, other_parent, other_tokens, *marks)}
    assert len(keys) == 7


@given(
    st.lists(st.integers(0, 2**31 - 1), min_size=1, max_size=300),
    st.lists(st.integers(0, 70), min_size=1, max_size=70),
    st.integers(1, 10**6),
)
def test_the_size_is_known_before_the_file_is_made(ids: list[int], widths: list[int], level: int) -> None:
    tokens = token_run(ids)
    head = Head(EntryKind.BLOCK, b"n" * 48, b"p" * 32, bytes(token_bytes(tokens)), level)
    tensors: dict[str, Array] = {
        f"plane.{n}": np.zeros((len(ids), width), np.uint8) for n, width in enumerate(widths)
    }
    data = whole(head, tensors)
    assert file_bytes(head, tensors) == len(data)
    assert decode(data)[0] == head
