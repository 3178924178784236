"""Chat template and tokenizer of a GGUF file; llama.cpp loads its vocabulary only."""

from __future__ import annotations

from functools import partial

from headstart.engines.llamacpp.binding import Model
from headstart.engines.llamacpp.source import resolve
from headstart.engines.llamacpp.vocabulary import read_vocabulary, tokenize
from headstart.engines.spelling import Spelling, spelled, tokenize_prompt

__all__ = ["read_spelling"]


def read_spelling(source: str) -> Spelling:
    """`source` as `serve --model` takes it; nothing is fetched. Raises ModelError, ConfigError."""
    model = Model(resolve(source, fetch=False).first, n_gpu_layers=0, vocab_only=True)
    vocabulary = read_vocabulary(model)
    return Spelling(
        model.chat_template(),
        spelled(vocabulary, vocabulary.bos),
        spelled(vocabulary, vocabulary.eos),
        partial(tokenize_prompt, vocabulary, partial(tokenize, model)),
    )
