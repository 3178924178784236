"""Keys and tensors of a GGUF file, read by ggml without loading anything.

llama.cpp ends the process where a key of an adapter has another type than it expects, and where the
numbers of its matrices are of a type that it cannot multiply. So they are looked at before.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import llama_cpp

from headstart.engines.llamacpp.logs import capture_logs
from headstart.errors import ModelError

__all__ = ["GgufHeader", "GgufTensor", "Value", "check_types", "read_header"]

KEY_TYPES: Mapping[str, tuple[int, str]] = {
    "general.type": (8, "text"),
    "general.architecture": (8, "text"),
    "adapter.type": (8, "text"),
    "adapter.lora.alpha": (6, "a 32-bit float"),
}
"""Keys of an adapter with their number in `enum gguf_type` of gguf.h, and what that is."""

NOT_MULTIPLIED = range(llama_cpp.GGML_TYPE_I8, llama_cpp.GGML_TYPE_F64 + 1)
"""Integers and doubles; all floats and quantized types lie elsewhere."""

Value = str | int | float | bool | tuple[int | float | bool, ...]
STRING, ARRAY = 8, 9
SCALARS: Mapping[int, Any] = {
    0: ctypes.c_uint8,
    1: ctypes.c_int8,
    2: ctypes.c_uint16,
    3: ctypes.c_int16,
    4: ctypes.c_uint32,
    5: ctypes.c_int32,
    6: ctypes.c_float,
    7: ctypes.c_bool,
    10: ctypes.c_uint64,
    11: ctypes.c_int64,
    12: ctypes.c_double,
}
"""`enum gguf_type` of gguf.h, but for text and arrays."""
SHORT_ARRAY = 4096
"""Longer arrays of numbers, which are of tokens and not of layers, are counted and not read."""

_LIB = llama_cpp.llama_cpp._lib
_VOID, _INDEX, _NAME = ctypes.c_void_p, ctypes.c_int64, ctypes.c_char_p


class _Params(ctypes.Structure):
    """`struct gguf_init_params` of gguf.h. A null `ctx` reads keys and names only."""

    _fields_ = (("no_alloc", ctypes.c_bool), ("ctx", _VOID))


def _function(name: str, result: Any, *arguments: Any) -> Any:
    return ctypes.CFUNCTYPE(result, *arguments)((name, _LIB))


_open = _function("gguf_init_from_file", _VOID, _NAME, _Params)
_free = _function("gguf_free", None, _VOID)
_find_key = _function("gguf_find_key", _INDEX, _VOID, _NAME)
_key_type = _function("gguf_get_kv_type", ctypes.c_int, _VOID, _INDEX)
_keys = _function("gguf_get_n_kv", _INDEX, _VOID)
_key = _function("gguf_get_key", _NAME, _VOID, _INDEX)
_text = _function("gguf_get_val_str", _NAME, _VOID, _INDEX)
_value = _function("gguf_get_val_data", _VOID, _VOID, _INDEX)
_array_type = _function("gguf_get_arr_type", ctypes.c_int, _VOID, _INDEX)
_array_length = _function("gguf_get_arr_n", ctypes.c_size_t, _VOID, _INDEX)
_array = _function("gguf_get_arr_data", _VOID, _VOID, _INDEX)
_data_offset = _function("gguf_get_data_offset", ctypes.c_size_t, _VOID)
_tensor_offset = _function("gguf_get_tensor_offset", ctypes.c_size_t, _VOID, _INDEX)
_tensor_size = _function("gguf_get_tensor_size", ctypes.c_size_t, _VOID, _INDEX)
_type_name = _function("ggml_type_name", _NAME, ctypes.c_int)
_type_size = _function("ggml_type_size", ctypes.c_size_t, ctypes.c_int)
_block_size = _function("ggml_blck_size", ctypes.c_int64, ctypes.c_int)
_tensors = _function("gguf_get_n_tensors", _INDEX, _VOID)
_tensor_type = _function("gguf_get_tensor_type", ctypes.c_int, _VOID, _INDEX)
_tensor_name = _function("gguf_get_tensor_name", _NAME, _VOID, _INDEX)


class _Header:
    """An open header. Raises ModelError, with ggml's own reason, where it cannot be read."""

    def __init__(self, path: Path) -> None:
        with capture_logs() as log:
            self.handle = _open(str(path).encode(), _Params(True, None))
        if not self.handle:
            raise ModelError(f"{path} cannot be read: {log.reason()}")

    def close(self) -> None:
        _free(self.handle)


def check_types(path: Path) -> None:
    """Raises ModelError where the adapter at `path` has no tensors, or something of a type that
    llama.cpp cannot use."""
    with closing(_Header(path)) as header:
        for key, (expected, words) in KEY_TYPES.items():
            index = _find_key(header.handle, key.encode())
            if index >= 0 and _key_type(header.handle, index) != expected:
                raise ModelError(f"the LoRA adapter {path} is damaged or made wrong: {key} is not {words}")
        if not _tensors(header.handle):
            raise ModelError(f"the LoRA adapter {path} is empty: it has no tensors")
        for index in range(_tensors(header.handle)):
            if _tensor_type(header.handle, index) in NOT_MULTIPLIED:
                name = _tensor_name(header.handle, index).decode("utf-8", "replace")
                raise ModelError(
                    f"the LoRA adapter {path} is damaged or made wrong: {name} has integers or doubles; "
                    "expected f32, f16, bf16 or a quantized type"
                )


@dataclass(frozen=True)
class GgufTensor:
    """`type`: as ggml spells it, such as "q4_K"; `count`: of its numbers."""

    name: str
    type: str
    count: int
    nbytes: int


@dataclass(frozen=True)
class GgufHeader:
    """`keys`: values by key; `lengths`: of arrays of text and of long ones, whose values are left out."""

    keys: Mapping[str, Value]
    lengths: Mapping[str, int]
    tensors: tuple[GgufTensor, ...]


def read_header(path: Path) -> GgufHeader:
    """What the header of the GGUF file at `path` says. Raises ModelError where it cannot be read, or
    where the file is shorter than it says."""
    with closing(_Header(path)) as header:
        handle = header.handle
        keys: dict[str, Value] = {}
        lengths: dict[str, int] = {}
        for index in range(_keys(handle)):
            name, kind = _words(_key(handle, index)), _key_type(handle, index)
            if kind == ARRAY:
                lengths[name] = _array_length(handle, index)
                if _array_type(handle, index) in SCALARS and lengths[name] <= SHORT_ARRAY:
                    keys[name] = _numbers(handle, index)
            elif kind == STRING:
                keys[name] = _words(_text(handle, index))
            else:
                keys[name] = SCALARS[kind].from_address(_value(handle, index)).value
        tensors = tuple(_tensor(handle, index) for index in range(_tensors(handle)))
        _check_whole(path, handle)
        return GgufHeader(keys, lengths, tensors)


def _words(data: bytes | None) -> str:
    return (data or b"").decode("utf-8", "replace")


def _numbers(handle: Any, index: int) -> tuple[int | float | bool, ...]:
    count = _array_length(handle, index)
    if not count:
        return ()
    return tuple((SCALARS[_array_type(handle, index)] * count).from_address(_array(handle, index)))


def _tensor(handle: Any, index: int) -> GgufTensor:
    kind, nbytes = _tensor_type(handle, index), _tensor_size(handle, index)
    count = nbytes // _type_size(kind) * _block_size(kind)
    return GgufTensor(_words(_tensor_name(handle, index)), _words(_type_name(kind)), count, nbytes)


def _check_whole(path: Path, handle: Any) -> None:
    ends = [_tensor_offset(handle, index) + _tensor_size(handle, index) for index in range(_tensors(handle))]
    expected, size = _data_offset(handle) + max(ends, default=0), path.stat().st_size
    if size < expected:
        raise ModelError(f"{path} is cut short: {size:,} bytes, expected {expected:,}; fetch the model again")
