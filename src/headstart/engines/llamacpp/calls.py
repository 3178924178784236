"""The C functions of llama.cpp that the engine calls often, with raw pointers as arguments.

The same functions are in `llama_cpp`, declared with typed pointers that cost a conversion a call.
These are declarations of our own beside them, so nobody else's are changed. Semantics: `llama.h`.
"""

from __future__ import annotations

import ctypes
from typing import Any

import llama_cpp

__all__ = [
    "attach_threadpool",
    "decode",
    "get_logits_ith",
    "memory_clear",
    "memory_seq_cp",
    "memory_seq_keep",
    "memory_seq_pos_max",
    "memory_seq_pos_min",
    "memory_seq_rm",
    "state_seq_get_data",
    "state_seq_get_size",
    "state_seq_set_data",
    "token_to_piece",
    "tokenize",
    "vocab_get_attr",
    "vocab_is_eog",
]

_LIB = llama_cpp.llama_cpp._lib
_VOID, _INT, _SIZE, _U32 = ctypes.c_void_p, ctypes.c_int32, ctypes.c_size_t, ctypes.c_uint32


def _function(name: str, result: Any, *arguments: Any, long_running: bool = False) -> Any:
    """A declaration of `name`. Short calls keep the interpreter lock; long ones let it go."""
    kind = ctypes.CFUNCTYPE if long_running else ctypes.PYFUNCTYPE
    return kind(result, *arguments)((name, _LIB))


def _plain(name: str, result: Any) -> Any:
    """`name` without declared arguments, for calls once a token of the vocabulary: no conversions.

    The caller passes pointers as c_void_p, everything else as int.
    """
    function = getattr(ctypes.PyDLL(_LIB._name), name)
    function.restype = result
    return function


decode = _function("llama_decode", _INT, _VOID, llama_cpp.llama_batch, long_running=True)
get_logits_ith = _function("llama_get_logits_ith", _VOID, _VOID, _INT, long_running=True)
memory_clear = _function("llama_memory_clear", None, _VOID, ctypes.c_bool)
memory_seq_cp = _function("llama_memory_seq_cp", None, _VOID, _INT, _INT, _INT, _INT)
memory_seq_keep = _function("llama_memory_seq_keep", None, _VOID, _INT)
memory_seq_rm = _function("llama_memory_seq_rm", ctypes.c_bool, _VOID, _INT, _INT, _INT)
memory_seq_pos_min = _function("llama_memory_seq_pos_min", _INT, _VOID, _INT)
memory_seq_pos_max = _function("llama_memory_seq_pos_max", _INT, _VOID, _INT)
state_seq_get_size = _function("llama_state_seq_get_size_ext", _SIZE, _VOID, _INT, _U32)
state_seq_get_data = _function(
    "llama_state_seq_get_data_ext", _SIZE, _VOID, _VOID, _SIZE, _INT, _U32, long_running=True
)
state_seq_set_data = _function(
    "llama_state_seq_set_data_ext", _SIZE, _VOID, _VOID, _SIZE, _INT, _U32, long_running=True
)
attach_threadpool = _function("llama_attach_threadpool", None, _VOID, _VOID, _VOID)
tokenize = _function(
    "llama_tokenize",
    _INT,
    _VOID,
    ctypes.c_char_p,
    _INT,
    _VOID,
    _INT,
    ctypes.c_bool,
    ctypes.c_bool,
    long_running=True,
)
token_to_piece = _plain("llama_token_to_piece", _INT)
vocab_get_attr = _plain("llama_vocab_get_attr", _INT)
vocab_is_eog = _plain("llama_vocab_is_eog", ctypes.c_bool)
