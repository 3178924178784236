"""How a model spells: its chat template and its tokenizer, read without its weights."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from headstart.engines.base import Vocabulary
from headstart.prefix.tokens import TokenRun

__all__ = ["Spelling", "spelled", "tokenize_prompt"]


@dataclass(frozen=True)
class Spelling:
    """`template`: Jinja source, None where the model has none. `bos`, `eos`: spelled, "" where there is none.
    `tokenize`: a rendered prompt to token ids, None where there is no tokenizer."""

    template: str | None
    bos: str = ""
    eos: str = ""
    tokenize: Callable[[str], TokenRun] | None = None


def tokenize_prompt(vocabulary: Vocabulary, tokenize: Callable[..., TokenRun], text: str) -> TokenRun:
    """`text` as a prompt: control tokens where they are spelled, one beginning-of-sequence token.

    A template that spells the beginning itself does not get a second one. `tokenize`: the engine port's.
    """
    begun = vocabulary.bos is not None and text.startswith(spelled(vocabulary, vocabulary.bos))
    return tokenize(text, special=True, add_bos=vocabulary.adds_bos and not begun)


def spelled(vocabulary: Vocabulary, token: int | None) -> str:
    """The text of a token; "" for none."""
    return "" if token is None else vocabulary.pieces[token].decode("utf-8", "replace")
