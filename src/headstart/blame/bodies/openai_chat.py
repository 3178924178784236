"""/v1/chat/completions, as OpenAI, llama-server, vLLM, LM Studio and others take it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from headstart.blame.bodies.parts import (
    content_pieces,
    objects,
    options_of,
    present,
    shape_of,
    text_of,
    tool_pieces,
)
from headstart.blame.exchange import Dialect
from headstart.blame.prompt import Kind, Piece, Prompt

_THINKING = ("reasoning_content", "reasoning")


def prompt_of(body: Mapping[str, Any]) -> Prompt:
    pieces = list(tool_pieces(body))
    shape = []
    for index, message in objects(body, "messages"):
        role = text_of(message.get("role"))
        path = f"messages[{index}]"
        pieces += present(_message(message, path, role, index), f"{path}.content", role, index)
        shape.append(shape_of(message.get("content")))
    return Prompt(
        Dialect.OPENAI_CHAT, text_of(body.get("model")), tuple(pieces), options_of(body), tuple(shape)
    )


def _message(message: Mapping[str, Any], path: str, role: str, index: int) -> Iterator[Piece]:
    for field in _THINKING:
        if isinstance(message.get(field), str) and message[field]:
            yield Piece(Kind.THINKING, f"{path}.{field}", message[field], role, index, raw=message[field])
            break
    id = text_of(message.get("tool_call_id"))
    yield from content_pieces(message.get("content"), f"{path}.content", role, index, id=id)
    for number, call in objects(message, "tool_calls"):
        yield call_piece(call, f"{path}.tool_calls[{number}]", role, index)
    legacy = message.get("function_call")
    if isinstance(legacy, Mapping):
        yield call_piece({"function": legacy}, path, role, index, "function_call")


def call_piece(call: Mapping[str, Any], path: str, role: str, index: int, field: str = "function") -> Piece:
    """A call in its envelope; what it is called with as text, whether it came as text or as an object."""
    function = call.get("function")
    if not isinstance(function, Mapping):
        custom = call.get("custom")
        function, field = (custom, "custom") if isinstance(custom, Mapping) else (call, "")
    key = "input" if "input" in function and "arguments" not in function else "arguments"
    return Piece(
        Kind.CALL,
        ".".join(part for part in (path, field, key) if part),
        text_of(function.get(key)),
        role,
        index,
        name=text_of(function.get("name")),
        id=text_of(call.get("id")),
        raw=function.get(key),
    )
