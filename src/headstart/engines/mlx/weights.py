"""The weight files of a model folder, checked by their headers before anything is loaded.

A safetensors file is a u64 length, a JSON header of that length, and the tensors' bytes; the header
says where each tensor lies. mlx-lm reads every `model*.safetensors` of the folder, lazily and in no
order, so what is missing or doubled would show late or never.
"""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headstart.errors import ModelError

__all__ = ["StoredTensor", "check_safetensors", "read_json", "read_tensors", "weight_files"]

INDEX = "model.safetensors.index.json"
PATTERN = "model*.safetensors"
PART = re.compile(r"^(?P<stem>.+)-(?P<part>\d{5})-of-(?P<parts>\d{5})\.safetensors$")
LARGEST_HEADER = 100_000_000
LFS_POINTER = b"version https://git-lfs"
AGAIN = "fetch the model again"


@dataclass(frozen=True)
class StoredTensor:
    """What a header says of a tensor. `dtype` as safetensors spells it: "BF16", "U32"."""

    dtype: str
    shape: tuple[int, ...]
    nbytes: int


def read_json(path: Path) -> dict[str, Any]:
    """The JSON object in `path`. Raises ModelError where there is none."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ModelError(f"{path} cannot be read: {error}; {AGAIN}") from None
    if not isinstance(content, dict):
        raise ModelError(f"{path} holds {type(content).__name__}, expected a JSON object; {AGAIN}")
    return content


def weight_files(directory: Path) -> tuple[Path, ...]:
    """The weight files of `directory`, in order, all there and whole. Raises ModelError."""
    files = tuple(sorted(directory.glob(PATTERN)))
    index = _index(directory)
    _check_parts(directory, files, set(index.values()))
    if not files:
        raise ModelError(_without_weights(directory))
    held = {path.name: check_safetensors(path) for path in files}
    _check_once(directory, held)
    for tensor, name in index.items():
        if tensor not in held[name]:
            raise ModelError(f"{directory / name} lacks the tensor {tensor}, which {INDEX} names; {AGAIN}")
    return files


def check_safetensors(path: Path) -> frozenset[str]:
    """The names of the tensors in `path`. Raises ModelError where the file is not whole."""
    return frozenset(read_tensors(path))


def read_tensors(path: Path) -> dict[str, StoredTensor]:
    """The tensors in `path` by name, from its header. Raises ModelError where the file is not whole."""
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            start = file.read(len(LFS_POINTER))
            if start == LFS_POINTER:
                raise ModelError(f"{path} is a Git LFS pointer, not the weights: run `git lfs pull` there")
            length = struct.unpack("<Q", start[:8])[0] if len(start) >= 8 else -1
            if not 0 < length <= min(LARGEST_HEADER, size - 8):
                raise ModelError(f"{path} is not a whole safetensors file ({size:,} bytes); {AGAIN}")
            file.seek(8)
            return _tensors(path, file.read(length), size - 8 - length)
    except OSError as error:
        raise ModelError(f"{path} cannot be read: {error.strerror}") from None


def _tensors(path: Path, header: bytes, nbytes: int) -> dict[str, StoredTensor]:
    try:
        entries = {name: entry for name, entry in json.loads(header).items() if name != "__metadata__"}
        expected = max((int(entry["data_offsets"][1]) for entry in entries.values()), default=0)
        found = {name: _stored(entry) for name, entry in entries.items()}
    except (ValueError, KeyError, TypeError, AttributeError, IndexError):
        raise ModelError(f"the header of {path} is damaged; {AGAIN}") from None
    if nbytes != expected:
        what = "is cut short" if nbytes < expected else "has more than its header says"
        raise ModelError(f"{path} {what}: {nbytes:,} bytes of tensors, expected {expected:,}; {AGAIN}")
    return found


def _stored(entry: Mapping[str, Any]) -> StoredTensor:
    start, stop = entry["data_offsets"]
    return StoredTensor(str(entry["dtype"]), tuple(int(n) for n in entry["shape"]), int(stop) - int(start))


def _index(directory: Path) -> dict[str, str]:
    """Tensor names and the files they lie in, by the index; nothing where there is no index."""
    path = directory / INDEX
    if not path.is_file():
        return {}
    found = read_json(path).get("weight_map")
    if not isinstance(found, dict) or not all(isinstance(name, str) for name in found.values()):
        raise ModelError(f"{path} has no weight_map of tensors to files; {AGAIN}")
    return found


def _check_parts(directory: Path, files: Sequence[Path], indexed: set[str]) -> None:
    """All files of a split model are there: those of the index, and all parts where one is."""
    wanted = set(indexed)
    for path in files:
        match = PART.match(path.name)
        if match:
            count = int(match["parts"])
            wanted |= {f"{match['stem']}-{i:05d}-of-{count:05d}.safetensors" for i in range(1, count + 1)}
    missing = sorted(name for name in wanted if not (directory / name).is_file())
    if missing:
        listed = ", ".join(missing[:3]) + (f" and {len(missing) - 3} more" if len(missing) > 3 else "")
        raise ModelError(f"{directory} lacks {listed}: all parts of the weights are needed; {AGAIN}")
    others = sorted(name for name in indexed if name not in {path.name for path in files})
    if others:
        raise ModelError(f"{directory / others[0]} is not read by mlx-lm: weights are named {PATTERN}")


def _check_once(directory: Path, held: Mapping[str, frozenset[str]]) -> None:
    where: dict[str, str] = {}
    for name, tensors in held.items():
        for tensor in tensors:
            if tensor in where:
                raise ModelError(
                    f"{directory} has the tensor {tensor} in {where[tensor]} and in {name}: weights of two "
                    "models or versions lie there; keep those of one"
                )
            where[tensor] = name


def _without_weights(directory: Path) -> str:
    if any(directory.glob("*.gguf")):
        return f"{directory} holds GGUF weights, which mlx-lm cannot run: use --engine llamacpp"
    if any(directory.glob("*.bin")) or any(directory.glob("*.pt*")):
        return (
            f"{directory} holds PyTorch weights, which mlx-lm does not read: "
            f"convert them with `mlx_lm.convert --hf-path {directory} --mlx-path NEW`"
        )
    others = sorted(path.name for path in directory.glob("*.safetensors"))
    found = f", found {', '.join(others[:3])}" if others else ""
    return f"{directory} has no weights: expected {PATTERN}{found}; {AGAIN}"
