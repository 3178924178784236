"""What messages, items and tools look like in each dialect, as JSON schemas for the OpenAPI document.

They are parsed by hand, so that errors name the message and what to change; these say the same in short.
Fields beyond these are taken where the dialect has them, and change nothing.
"""

from __future__ import annotations

from typing import Any

from headstart.chat.messages import ROLES

__all__ = ["CHAT_MESSAGE", "CHAT_TOOL", "ITEM", "ITEM_TOOL", "MESSAGE", "MESSAGE_TOOL"]
__all__ += ["OLLAMA_MESSAGE", "PROMPT"]

_Schema = dict[str, Any]
_TEXT: _Schema = {"type": "string"}
_OBJECT: _Schema = {"type": "object"}


def _object(properties: _Schema, *required: str) -> _Schema:
    return {"type": "object", "properties": properties, "required": list(required)}


def _typed(kind: str, properties: _Schema, *required: str) -> _Schema:
    """An object whose `type` is `kind`."""
    return _object({"type": {"enum": [kind]}, **properties}, "type", *required)


def _list(items: _Schema) -> _Schema:
    return {"type": "array", "items": items}


def _parts(kind: str) -> _Schema:
    """A list of parts with text."""
    return _list(_typed(kind, {"text": _TEXT}, "text"))


def _any(*schemas: _Schema) -> _Schema:
    return {"anyOf": list(schemas)}


_NULL: _Schema = {"type": "null"}
_FUNCTION = _object({"name": _TEXT, "arguments": _TEXT}, "name")
CHAT_MESSAGE = _object(
    {
        "role": {"enum": list(ROLES)},
        "content": _any(_TEXT, _NULL, _parts("text")),
        "reasoning_content": _TEXT,
        "tool_calls": _list(_typed("function", {"id": _TEXT, "function": _FUNCTION}, "id", "function")),
        "tool_call_id": {**_TEXT, "description": "of a tool message: the id of a call of the turn before it"},
    },
    "role",
)
_TOOL = _object({"name": _TEXT, "parameters": _OBJECT}, "name")
CHAT_TOOL = _typed("function", {"function": _TOOL}, "function")

_BLOCK = _any(
    _typed("text", {"text": _TEXT}, "text"),
    _typed("thinking", {"thinking": _TEXT, "signature": _TEXT}, "thinking"),
    _typed("tool_use", {"id": _TEXT, "name": _TEXT, "input": _OBJECT}, "id", "name", "input"),
    _typed("tool_result", {"tool_use_id": _TEXT, "content": _any(_TEXT, _parts("text"))}, "tool_use_id"),
)
MESSAGE = _object(
    {"role": {"enum": ["user", "assistant", "system"]}, "content": _any(_TEXT, _list(_BLOCK))},
    "role",
    "content",
)
MESSAGE_TOOL = _object({"name": _TEXT, "input_schema": _OBJECT}, "name", "input_schema")

_CALL = {"call_id": _TEXT, "name": _TEXT, "arguments": _TEXT}
_OUTPUT = {"call_id": _TEXT, "output": _any(_TEXT, _parts("input_text"))}
ITEM = _any(
    _typed(
        "message",
        {
            "role": {"enum": ["user", "assistant", "system", "developer"]},
            "content": _any(_TEXT, _parts("input_text"), _parts("output_text")),
        },
        "role",
        "content",
    ),
    _typed("reasoning", {"content": _parts("reasoning_text")}),
    _typed("function_call", _CALL, *_CALL),
    _typed("function_call_output", _OUTPUT, *_OUTPUT),
)
ITEM_TOOL = _typed("function", {"name": _TEXT, "parameters": _OBJECT}, "name")

_OLLAMA_CALL = _object({"function": _object({"name": _TEXT, "arguments": _OBJECT}, "name")}, "function")
OLLAMA_MESSAGE = _object(
    {
        "role": {"enum": list(ROLES)},
        "content": _TEXT,
        "thinking": _TEXT,
        "tool_calls": _list(_OLLAMA_CALL),
        "tool_name": _TEXT,
    },
    "role",
)

_TOKENS: _Schema = {"type": "array", "items": {"type": "integer", "minimum": 0}, "minItems": 1}
PROMPT = _any(
    {**_TEXT, "minLength": 1},
    {"type": "array", "items": {**_TEXT, "minLength": 1}, "minItems": 1},
    _TOKENS,
    {"type": "array", "items": _TOKENS, "minItems": 1},
)
