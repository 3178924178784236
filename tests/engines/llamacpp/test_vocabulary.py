"""Pieces are the bytes that tokens stand for, and tokenizing gives tokens whose pieces are the text."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headstart.engines.llamacpp.engine import LlamaCppEngine
from tests.engines.llamacpp.conftest import LoadTiny


def spelled(engine: LlamaCppEngine, tokens: np.ndarray) -> bytes:
    return b"".join(engine.vocabulary.pieces[token] for token in tokens)


def test_control_tokens_are_spelled_and_end_replies(smollm2_engine: LlamaCppEngine) -> None:
    vocabulary = smollm2_engine.vocabulary
    assert len(vocabulary.pieces) == smollm2_engine.layout.vocab_size == 49152
    end = vocabulary.pieces.index(b"<|im_end|>")
    assert end in vocabulary.control
    assert end in vocabulary.end_of_generation
    assert vocabulary.pieces.index(b" the") not in vocabulary.control
    assert not vocabulary.adds_bos


def test_special_words_become_control_tokens_only_when_asked(smollm2_engine: LlamaCppEngine) -> None:
    text = "<|im_start|>user\nHi<|im_end|>"
    special = smollm2_engine.tokenize(text, special=True, add_bos=False)
    plain = smollm2_engine.tokenize(text, special=False, add_bos=False)
    control = smollm2_engine.vocabulary.control
    assert [int(t) in control for t in special].count(True) == 2
    assert not any(int(t) in control for t in plain)
    assert spelled(smollm2_engine, special) == spelled(smollm2_engine, plain) == text.encode()


def test_gemma_adds_its_first_token_when_asked(gemma_engine: LlamaCppEngine) -> None:
    vocabulary = gemma_engine.vocabulary
    assert vocabulary.adds_bos
    assert len(vocabulary.pieces) == 262_144
    with_bos = gemma_engine.tokenize("Hello", special=False, add_bos=True)
    without = gemma_engine.tokenize("Hello", special=False, add_bos=False)
    assert [int(t) for t in with_bos] == [vocabulary.bos, *(int(t) for t in without)]
    assert vocabulary.pieces.index(b"<end_of_turn>") in vocabulary.end_of_generation


@pytest.mark.parametrize("text", ["", " ", "\n\n", "你好 wörld", "🧑‍🚀 a\x00b", "x" * 5000, "\ud800 alone"])
def test_pieces_give_the_text_back(
    smollm2_engine: LlamaCppEngine, gemma_engine: LlamaCppEngine, text: str
) -> None:
    expected = text.encode("utf-8", "replace")
    for engine in (smollm2_engine, gemma_engine):
        tokens = engine.tokenize(text, special=False, add_bos=False)
        assert tokens.dtype == np.int32
        assert spelled(engine, tokens) == expected


def test_byte_tokens_stand_for_one_byte(gemma_engine: LlamaCppEngine) -> None:
    """A character without a token of its own comes as its UTF-8 bytes."""
    tokens = gemma_engine.tokenize("\U000e0041", special=False, add_bos=False)
    pieces = [gemma_engine.vocabulary.pieces[t] for t in tokens]
    assert pieces == [bytes([byte]) for byte in "\U000e0041".encode()]


@settings(max_examples=60, deadline=None)
@given(text=st.text(st.characters(min_codepoint=32, max_codepoint=0x2FFFF, codec="utf-8"), max_size=200))
def test_any_text_comes_back(load_tiny: LoadTiny, text: str) -> None:
    """Most pieces are missing in the tiny vocabulary, so there are many more tokens than words. SmolLM2's
    tokenizer has no token for some bytes that only control and private characters use."""
    engine = load_tiny("llama")
    tokens = engine.tokenize(text, special=False, add_bos=False)
    assert spelled(engine, tokens) == text.encode("utf-8", "replace")
