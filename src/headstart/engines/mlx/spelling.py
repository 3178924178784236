"""Chat template and tokenizer of a model folder. Imports nothing of MLX: the folder of any model of the hub
with a tokenizer.json will do."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from headstart.engines.mlx.templates import read_chat_template, read_tokenizer_config
from headstart.engines.mlx.tokenizer import TOKENIZER, read_tokenizer
from headstart.engines.mlx.weights import read_json
from headstart.engines.spelling import Spelling, spelled, tokenize_prompt

__all__ = ["read_spelling"]


def read_spelling(directory: Path) -> Spelling:
    """Raises ModelError where what is there cannot be read."""
    template = read_chat_template(directory)
    if not (directory / TOKENIZER).is_file():
        about = read_tokenizer_config(directory)
        return Spelling(template, _named(about.get("bos_token")), _named(about.get("eos_token")))
    config = read_json(directory / "config.json") if (directory / "config.json").is_file() else {}
    vocabulary, tokenize = read_tokenizer(directory, config, _entries(directory))
    return Spelling(
        template,
        spelled(vocabulary, vocabulary.bos),
        spelled(vocabulary, vocabulary.eos),
        partial(tokenize_prompt, vocabulary, tokenize),
    )


def _named(token: object) -> str:
    """A token as tokenizer_config.json names it: a text, or an object with one."""
    text = token.get("content") if isinstance(token, dict) else token
    return text if isinstance(text, str) else ""


def _entries(directory: Path) -> int:
    """One more than the highest token id."""
    content = read_json(directory / TOKENIZER)
    vocab = content.get("model", {}).get("vocab", {})
    ids = list(vocab.values()) if isinstance(vocab, dict) else range(len(vocab))
    return 1 + max([*ids, *(one["id"] for one in content.get("added_tokens", []))], default=-1)
