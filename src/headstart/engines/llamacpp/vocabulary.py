"""A model's vocabulary as bytes, and its tokenizer."""

from __future__ import annotations

import ctypes

import llama_cpp
import numpy as np

from headstart.engines.base import Vocabulary
from headstart.engines.llamacpp import calls
from headstart.engines.llamacpp.binding import Model
from headstart.errors import EngineError
from headstart.prefix.tokens import TokenRun

__all__ = ["read_vocabulary", "tokenize"]

PIECE_BYTES = 256


def read_vocabulary(model: Model) -> Vocabulary:
    """All pieces of a model. Control tokens are spelled, such as b"<|im_end|>"."""
    vocab, count = ctypes.c_void_p(model.vocab), model.vocab_size
    get_attr, is_eog = calls.vocab_get_attr, calls.vocab_is_eog
    control_bit = llama_cpp.LLAMA_TOKEN_ATTR_CONTROL
    bos, eos = llama_cpp.llama_vocab_bos(model.vocab), llama_cpp.llama_vocab_eos(model.vocab)
    return Vocabulary(
        pieces=_pieces(model),
        control=frozenset(t for t in range(count) if get_attr(vocab, t) & control_bit),
        end_of_generation=frozenset(t for t in range(count) if is_eog(vocab, t)),
        bos=bos if bos >= 0 else None,
        eos=eos if eos >= 0 else None,
        adds_bos=bool(llama_cpp.llama_vocab_get_add_bos(model.vocab)),
    )


def _pieces(model: Model) -> list[bytes]:
    vocab, to_piece = ctypes.c_void_p(model.vocab), calls.token_to_piece
    buffer = ctypes.create_string_buffer(PIECE_BYTES)
    address, view = ctypes.c_void_p(ctypes.addressof(buffer)), memoryview(buffer)
    pieces = []
    for token in range(model.vocab_size):
        length = to_piece(vocab, token, address, PIECE_BYTES, 0, True)
        pieces.append(bytes(view[:length]) if length >= 0 else _long_piece(model, token, -length))
    return pieces


def _long_piece(model: Model, token: int, length: int) -> bytes:
    buffer = ctypes.create_string_buffer(length)
    address = ctypes.c_void_p(ctypes.addressof(buffer))
    calls.token_to_piece(ctypes.c_void_p(model.vocab), token, address, length, 0, True)
    return buffer.raw


def tokenize(model: Model, text: str, *, special: bool, add_bos: bool) -> TokenRun:
    """Token ids of `text`. llama_tokenize answers the negative count where the space was too small."""
    data = text.encode("utf-8", "replace")
    space = len(data) // 2 + 16
    while True:
        tokens = np.empty(space, np.int32)
        count = calls.tokenize(model.vocab, data, len(data), tokens.ctypes.data, space, add_bos, special)
        if count >= 0:
            return tokens[:count].copy()
        if -count <= space:
            raise EngineError(f"llama.cpp could not tokenize {len(data)} bytes of text")
        space = -count
