"""/v1/completions and llama-server's /completion: the prompt is text, token ids, or a list of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from headstart.blame.bodies.parts import options_of, text_of
from headstart.blame.exchange import Dialect
from headstart.blame.prompt import Kind, Piece, Prompt


def prompt_of(body: Mapping[str, Any]) -> Prompt:
    pieces = tuple(_pieces(body))
    return Prompt(Dialect.OPENAI_COMPLETIONS, text_of(body.get("model")), pieces, options_of(body))


def _pieces(body: Mapping[str, Any]) -> Iterator[Piece]:
    prompt = body.get("prompt")
    if isinstance(prompt, list) and not all(isinstance(one, int) for one in prompt):
        for index, one in enumerate(prompt):
            yield Piece(Kind.TEXT, f"prompt[{index}]", _text(one), message=index, raw=one)
    elif prompt is not None:
        yield Piece(Kind.TEXT, "prompt", _text(prompt), message=0, raw=prompt)
    if text := text_of(body.get("suffix")):
        yield Piece(Kind.TEXT, "suffix", text, "suffix", raw=text)


def _text(one: Any) -> str:
    """Text as it is; token ids as numbers with a space after each, so that more ids only go on."""
    return "".join(f"{token} " for token in one) if isinstance(one, list) else text_of(one)
