"""/v1/messages: a system field of its own, blocks, and system messages among the others."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from headstart.blame.bodies.parts import (
    block_pieces,
    content_pieces,
    kind_for,
    media_piece,
    objects,
    options_of,
    present,
    shape_of,
    text_of,
    tool_pieces,
)
from headstart.blame.exchange import Dialect
from headstart.blame.prompt import Kind, Piece, Prompt


def prompt_of(body: Mapping[str, Any]) -> Prompt:
    pieces = [*tool_pieces(body), *content_pieces(body.get("system"), "system", "system", None)]
    shape = []
    for index, message in objects(body, "messages"):
        role = text_of(message.get("role"))
        path = f"messages[{index}].content"
        pieces += present(_blocks(message.get("content"), path, role, index), path, role, index)
        shape.append(shape_of(message.get("content")))
    return Prompt(
        Dialect.ANTHROPIC, text_of(body.get("model")), tuple(pieces), options_of(body), tuple(shape)
    )


def _blocks(content: Any, path: str, role: str, index: int) -> Iterator[Piece]:
    if not isinstance(content, list):
        yield from content_pieces(content, path, role, index)
        return
    for number, block in enumerate(content):
        yield from _block(block, f"{path}[{number}]", role, index)


def _block(block: Any, path: str, role: str, index: int) -> Iterator[Piece]:
    kind = text_of(block.get("type")) if isinstance(block, Mapping) else ""
    if kind == "thinking":
        # Its text is left out where the client asked for that; the signature says nothing.
        if text := text_of(block.get("thinking")):
            yield Piece(Kind.THINKING, f"{path}.thinking", text, role, index, raw=text)
    elif kind == "redacted_thinking":
        return
    elif kind.endswith("tool_use"):
        given = block.get("input")
        name, id = text_of(block.get("name")), text_of(block.get("id"))
        yield Piece(Kind.CALL, f"{path}.input", text_of(given), role, index, name, id, raw=given)
    elif kind.endswith("tool_result"):
        yield from _result(block, path, index)
    elif kind in ("image", "document"):
        yield media_piece(block, path, role, index)
    else:
        yield from block_pieces(block, path, role, index, kind_for(role))


def _result(block: Mapping[str, Any], path: str, index: int) -> Iterator[Piece]:
    id = text_of(block.get("tool_use_id"))
    found = content_pieces(block.get("content"), f"{path}.content", "tool", index, id=id)
    yield from present(found, f"{path}.content", "tool", index)
