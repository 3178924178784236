"""/v1/responses: instructions, and input as text or as items, with or without a type."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from headstart.blame.bodies.parts import (
    content_pieces,
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

# What an item says beside its content; anything else of it is bookkeeping.
_BOOKKEEPING = ("id", "status", "call_id")


def prompt_of(body: Mapping[str, Any]) -> Prompt:
    pieces = [*tool_pieces(body), *content_pieces(body.get("instructions"), "instructions", "system", None)]
    shape: list[str] = []
    if isinstance(body.get("input"), list):
        for index, item in objects(body, "input"):
            pieces += _item(item, f"input[{index}]", index)
            shape.append(shape_of(item.get("content")))
    else:
        pieces += content_pieces(body.get("input"), "input", "user", 0)
        shape.append("string")
    return Prompt(
        Dialect.OPENAI_RESPONSES, text_of(body.get("model")), tuple(pieces), options_of(body), tuple(shape)
    )


def _item(item: Mapping[str, Any], path: str, index: int) -> Iterator[Piece]:
    kind = text_of(item.get("type")) or ("message" if "role" in item else "")
    if kind == "message":
        role = text_of(item.get("role"))
        found = content_pieces(item.get("content"), f"{path}.content", role, index)
        yield from present(found, f"{path}.content", role, index)
    elif kind == "reasoning":
        yield from _reasoning(item, path, index)
    elif kind in ("function_call", "custom_tool_call"):
        field = "arguments" if kind == "function_call" else "input"
        name, id = text_of(item.get("name")), text_of(item.get("call_id"))
        text = text_of(item.get(field))
        yield Piece(Kind.CALL, f"{path}.{field}", text, "assistant", index, name, id, raw=item.get(field))
    elif kind.endswith("_output"):
        id = text_of(item.get("call_id"))
        found = content_pieces(item.get("output"), f"{path}.output", "tool", index, id=id)
        yield from present(found, f"{path}.output", "tool", index)
    else:
        kept = {key: value for key, value in item.items() if key not in _BOOKKEEPING}
        yield media_piece(kept, path, "assistant", index)


def _reasoning(item: Mapping[str, Any], path: str, index: int) -> Iterator[Piece]:
    """What was thought, else its summary. Encrypted content is nothing a local server can read."""
    for field in ("content", "summary"):
        found = list(
            content_pieces(item.get(field), f"{path}.{field}", "assistant", index, kind=Kind.THINKING)
        )
        if found:
            yield from found
            return
