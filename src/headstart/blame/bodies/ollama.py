"""/api/chat and /api/generate, Ollama's own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from headstart.blame.bodies.openai_chat import call_piece
from headstart.blame.bodies.parts import (
    content_pieces,
    digest,
    listed,
    objects,
    options_of,
    present,
    shape_of,
    text_of,
    tool_pieces,
)
from headstart.blame.exchange import Dialect
from headstart.blame.prompt import Kind, Piece, Prompt


def chat_prompt_of(body: Mapping[str, Any]) -> Prompt:
    pieces = list(tool_pieces(body))
    shape = []
    for index, message in objects(body, "messages"):
        role = text_of(message.get("role"))
        path = f"messages[{index}]"
        pieces += present(_message(message, path, role, index), f"{path}.content", role, index)
        shape.append(shape_of(message.get("content")))
    return Prompt(
        Dialect.OLLAMA_CHAT, text_of(body.get("model")), tuple(pieces), options_of(body), tuple(shape)
    )


def _message(message: Mapping[str, Any], path: str, role: str, index: int) -> Iterator[Piece]:
    if text := text_of(message.get("thinking")):
        yield Piece(Kind.THINKING, f"{path}.thinking", text, role, index, raw=text)
    id, name = text_of(message.get("tool_call_id")), text_of(message.get("tool_name"))
    for piece in content_pieces(message.get("content"), f"{path}.content", role, index, id=id):
        yield replace(piece, name=name) if name and piece.kind is Kind.RESULT else piece
    yield from _images(message, path, role, index)
    for number, call in objects(message, "tool_calls"):
        yield call_piece(call, f"{path}.tool_calls[{number}]", role, index)


def _images(holder: Mapping[str, Any], path: str, role: str, index: int) -> Iterator[Piece]:
    for number, image in enumerate(listed(holder, "images")):
        where = f"{path}.images[{number}]" if path else f"images[{number}]"
        yield Piece(Kind.MEDIA, where, f"image {digest(image)}", role, index, "image", raw=image)


def generate_prompt_of(body: Mapping[str, Any]) -> Prompt:
    pieces = list(content_pieces(body.get("system"), "system", "system", None))
    if context := listed(body, "context"):
        ids = "".join(f"{token} " for token in context)
        pieces.append(Piece(Kind.TEXT, "context", ids, "context", message=0, raw=context))
    pieces += _images(body, "", "user", 0)
    pieces += content_pieces(body.get("prompt"), "prompt", "user", 0)
    pieces += content_pieces(body.get("suffix"), "suffix", "suffix", 0)
    return Prompt(Dialect.OLLAMA_GENERATE, text_of(body.get("model")), tuple(pieces), options_of(body))
