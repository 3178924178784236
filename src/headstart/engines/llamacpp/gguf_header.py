"""The kinds of values a GGUF file has, read by ggml without loading anything.

llama.cpp ends the process where a key of an adapter has another type than it expects, and where the
numbers of its matrices are of a type that it cannot multiply. So they are looked at before.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import llama_cpp

from headstart.engines.llamacpp.logs import capture_logs
from headstart.errors import ModelError

__all__ = ["check_types"]

KEY_TYPES: Mapping[str, tuple[int, str]] = {
    "general.type": (8, "text"),
    "general.architecture": (8, "text"),
    "adapter.type": (8, "text"),
    "adapter.lora.alpha": (6, "a 32-bit float"),
}
"""Keys of an adapter with their number in `enum gguf_type` of gguf.h, and what that is."""

NOT_MULTIPLIED = range(llama_cpp.GGML_TYPE_I8, llama_cpp.GGML_TYPE_F64 + 1)
"""Integers and doubles; all floats and quantized types lie elsewhere."""

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
