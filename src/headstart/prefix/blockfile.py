"""One stored entry as one file: the form on disk, checked to the last byte.

A file is a safetensors file (https://github.com/huggingface/safetensors, "Format"): eight bytes
little-endian header length, a JSON header, the tensors one behind the other. Its `__metadata__` says
what the entry is, and holds a BLAKE3 checksum of every tensor and one of the header itself:

    format      "headstart-state-1"
    kind        block, checkpoint or logits
    namespace   hex; what makes the state reusable
    parent      hex; chain key of the block before (of a first block: the namespace)
    level       blocks from the root; a block's own, a mark's: that of the block it hangs on
    canonical   "1" where made by canonical prefill
    stop        why a checkpoint was taken, "" otherwise
    checksums   JSON object: tensor name to 32 hex digits (BLAKE3, 16 bytes)
    header      32 hex digits: BLAKE3 of the header bytes with these digits replaced by zeros

Formats to come keep `format` and `header`, so that a file of theirs is told from a damaged one.

The tensor `tokens` (int32) holds the block's tokens, or those from the parent's end to a mark.
A block's other tensors are its planes (uint8, tokens x row bytes); a checkpoint has `state`
(uint8), logits have `logits` (float32).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from blake3 import blake3

from headstart.prefix.keys import chain_key, token_bytes

FORMAT = "headstart-state-1"
ALIGN = 64
LENGTH_BYTES = 8
MAX_HEADER_BYTES = 16 << 20
CHECKSUM_BYTES = 16
_ZEROS = "0" * (2 * CHECKSUM_BYTES)
_MOST_LEVELS = 1 << 31
_DTYPES: Mapping[str, Any] = {"U8": np.uint8, "I32": np.int32, "F32": np.float32}

Array = npt.NDArray[Any]


class EntryKind(StrEnum):
    BLOCK = "block"
    CHECKPOINT = "checkpoint"
    LOGITS = "logits"


class Damage(StrEnum):
    """What a file that cannot be used suffers from."""

    CORRUPT = "corrupt"
    UNREADABLE_VERSION = "unreadable_version"


class BlockFileError(Exception):
    """A file that cannot be used. `tensor`: the one at fault, where it is one."""

    def __init__(self, damage: Damage, detail: str, tensor: str | None = None) -> None:
        super().__init__(detail)
        self.damage = damage
        self.tensor = tensor


class Head(NamedTuple):
    """What an entry is. `tokens` are token bytes (see `keys`): a block's own, or a mark's tail."""

    kind: EntryKind
    namespace: bytes
    parent: bytes
    tokens: bytes
    level: int
    canonical: bool = False
    stop: str = ""

    @property
    def key(self) -> bytes:
        """The name of the entry; equal keys mean equal tokens in the same namespace."""
        if self.kind is EntryKind.BLOCK:
            return chain_key(self.parent, self.tokens)
        return chain_key(self.parent, self.tokens + self.kind.encode())


def checksum(data: Array) -> str:
    """BLAKE3 of an array's bytes, 32 hex digits."""
    raw = memoryview(np.ascontiguousarray(data).reshape(-1).view(np.uint8).data)
    return blake3(raw).digest(CHECKSUM_BYTES).hex()


def encode(head: Head, tensors: Mapping[str, Array]) -> list[bytes | Array]:
    """The file as buffers to be written one after another; the arrays are not copied."""
    parts = _parts(head, tensors)
    text = _header_text(head, parts, {name: checksum(array) for name, array in parts.items()})
    digest = blake3(text).digest(CHECKSUM_BYTES).hex()
    text = text.replace(_header_field(_ZEROS), _header_field(digest), 1)
    return [len(text).to_bytes(LENGTH_BYTES, "little") + text, *(a for a in parts.values() if a.nbytes)]


def file_bytes(head: Head, tensors: Mapping[str, Array]) -> int:
    """How large the file will be, exactly, without looking at the tensors' bytes."""
    parts = _parts(head, tensors)
    text = _header_text(head, parts, dict.fromkeys(parts, _ZEROS))
    return LENGTH_BYTES + len(text) + sum(array.nbytes for array in parts.values())


def _parts(head: Head, tensors: Mapping[str, Array]) -> dict[str, Array]:
    tokens = np.frombuffer(head.tokens, ">u4").astype(np.int32)
    return {"tokens": tokens} | {name: np.ascontiguousarray(array) for name, array in tensors.items()}


def _header_text(head: Head, parts: Mapping[str, Array], checksums: Mapping[str, str]) -> bytes:
    """The header, padded, its own checksum not yet in it."""
    header: dict[str, Any] = {}
    offset = 0
    for name, array in parts.items():
        stop = offset + array.nbytes
        dtype = next(label for label, kind in _DTYPES.items() if array.dtype == kind)
        header[name] = {"dtype": dtype, "shape": list(array.shape), "data_offsets": [offset, stop]}
        offset = stop
    metadata = {
        "format": FORMAT,
        "kind": head.kind.value,
        "namespace": head.namespace.hex(),
        "parent": head.parent.hex(),
        "level": str(head.level),
        "canonical": "1" if head.canonical else "0",
        "stop": head.stop,
        "checksums": json.dumps(checksums),
        "header": _ZEROS,
    }
    text = json.dumps({"__metadata__": metadata, **header}, separators=(",", ":")).encode()
    return text + b" " * (-(len(text) + LENGTH_BYTES) % ALIGN)


def _header_field(digest: str) -> bytes:
    return f'"header":"{digest}"'.encode()


def decode(data: npt.NDArray[np.uint8], *, verify: bool = True) -> tuple[Head, dict[str, Array]]:
    """Head and tensors (views into `data`) of a whole file. Raises BlockFileError.

    `verify=False` leaves the tensors' checksums out, not the header's.
    """
    head, places, sums = decode_head(data)
    tensors = {}
    for name, (dtype, shape, start, stop) in places.items():
        if stop > len(data):
            raise BlockFileError(Damage.CORRUPT, f"the file ends inside tensor {name}", name)
        raw = data[start:stop]
        if (verify or name == "tokens") and checksum(raw) != sums.get(name):
            raise BlockFileError(Damage.CORRUPT, f"the checksum of tensor {name} is wrong", name)
        try:
            tensors[name] = raw.view(dtype).reshape(shape)
        except ValueError as error:
            raise BlockFileError(Damage.CORRUPT, f"tensor {name} has no such shape: {error}", name) from error
    end = max(stop for _, _, _, stop in places.values())
    if end != len(data):
        raise BlockFileError(Damage.CORRUPT, f"the file has {len(data)} bytes, its header says {end}")
    return head, tensors


Place = tuple[Any, Sequence[int], int, int]


def decode_head(data: npt.NDArray[np.uint8]) -> tuple[Head, dict[str, Place], dict[str, str]]:
    """Head, tensor places (dtype, shape, start, stop in the file) and checksums from a file's
    beginning, which must reach past the tensor `tokens`. Raises BlockFileError."""
    header = _header(data)
    metadata = header.pop("__metadata__")
    body = LENGTH_BYTES + int.from_bytes(data[:LENGTH_BYTES].tobytes(), "little")
    try:
        places = {name: _place(entry, body) for name, entry in header.items()}
        sums = dict(json.loads(metadata["checksums"]))
        _, _, start, stop = places["tokens"]
        if stop > len(data):
            raise BlockFileError(Damage.CORRUPT, "the file ends inside tensor tokens", "tokens")
        head = Head(
            kind=EntryKind(metadata["kind"]),
            namespace=bytes.fromhex(metadata["namespace"]),
            parent=bytes.fromhex(metadata["parent"]),
            tokens=bytes(token_bytes(data[start:stop].view(np.int32))),
            level=_level(metadata["level"]),
            canonical=metadata["canonical"] == "1",
            stop=metadata["stop"].encode().decode(),
        )
    except (KeyError, ValueError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        raise BlockFileError(Damage.CORRUPT, f"the header is not complete: {error!r}") from error
    if checksum(data[start:stop]) != sums.get("tokens"):
        raise BlockFileError(Damage.CORRUPT, "the checksum of tensor tokens is wrong", "tokens")
    return head, places, sums


def _header(data: npt.NDArray[np.uint8]) -> dict[str, Any]:
    """The JSON header after its own checksum was found right."""
    if len(data) < LENGTH_BYTES:
        raise BlockFileError(Damage.CORRUPT, f"the file has {len(data)} bytes, too few for a header")
    length = int.from_bytes(data[:LENGTH_BYTES].tobytes(), "little")
    if not 0 < length <= min(MAX_HEADER_BYTES, len(data) - LENGTH_BYTES):
        raise BlockFileError(Damage.CORRUPT, f"a header of {length} bytes does not fit the file")
    text = data[LENGTH_BYTES : LENGTH_BYTES + length].tobytes()
    try:
        header: dict[str, Any] = json.loads(text)
        metadata = header["__metadata__"]
        version, digest = metadata["format"], metadata["header"]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise BlockFileError(Damage.CORRUPT, f"the header cannot be read: {error!r}") from error
    zeroed = text.replace(_header_field(str(digest)), _header_field(_ZEROS), 1)
    if blake3(zeroed).digest(CHECKSUM_BYTES).hex() != digest:
        raise BlockFileError(Damage.CORRUPT, "the header's checksum is wrong")
    if version != FORMAT:
        raise BlockFileError(
            Damage.UNREADABLE_VERSION, f"the file is of format {version!r}; this version reads {FORMAT!r}"
        )
    return header


def _level(text: str) -> int:
    level = int(text)
    if not 0 <= level < _MOST_LEVELS:
        raise ValueError(f"no entry is at level {level}")
    return level


def _place(entry: Mapping[str, Any], body: int) -> Place:
    dtype = _DTYPES[entry["dtype"]]
    shape = [int(size) for size in entry["shape"]]
    start, stop = (int(offset) for offset in entry["data_offsets"])
    if start < 0 or stop - start != int(np.prod(shape)) * np.dtype(dtype).itemsize:
        raise ValueError("a tensor's offsets do not fit its shape")
    return dtype, shape, body + start, body + stop


def plane_tensors(names: Sequence[str], planes: Sequence[Array]) -> Iterator[tuple[str, Array]]:
    """Planes under the names their layout gives them."""
    yield from zip((f"plane.{name}" for name in names), planes, strict=True)
