"""The messages of a conversation in the form a given chat template takes.

Clients send OpenAI's form: content as a string, as a list of typed parts, or null beside tool
calls; tool arguments as JSON text; a `developer` role. Most templates take only some of these.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from headstart.errors import RequestError

Message = Mapping[str, Any]
ROLES = ("system", "developer", "user", "assistant", "tool")
"""Who speaks; templates know no others that an API has."""
_TEXT_PARTS = {"text": "text", "input_text": "text", "output_text": "text", "refusal": "refusal"}
_MEDIA_PARTS = (
    "image",
    "image_url",
    "input_image",
    "input_audio",
    "audio",
    "video_url",
    "file",
    "input_file",
)


@dataclass(frozen=True)
class ContentForms:
    """What a template takes.

    `only_parts`: content must be a list of parts (strings show nothing). `null_content`: null
    content beside tool calls renders without the word None. `object_arguments`: tool arguments
    as an object rather than as JSON text. `developer_role`: it knows the role `developer`.
    """

    only_parts: bool = False
    null_content: bool = False
    object_arguments: bool = True
    developer_role: bool = False


def prepare_messages(messages: Sequence[Message], forms: ContentForms) -> list[dict[str, Any]]:
    """`messages` as the template takes them; the caller's objects stay as they are.

    Raises RequestError(400) naming the part where content is not text.
    """
    return [_prepare(message, f"messages[{index}]", forms) for index, message in enumerate(messages)]


def _prepare(message: Message, where: str, forms: ContentForms) -> dict[str, Any]:
    prepared = dict(message)
    texts = texts_of(message.get("content"), f"{where}.content")
    if forms.only_parts:
        prepared["content"] = [{"type": "text", "text": text} for text in texts or ()]
    elif texts is None:
        prepared["content"] = None if forms.null_content else ""
    else:
        prepared["content"] = "\n".join(texts)
    if prepared.get("role") == "developer" and not forms.developer_role:
        prepared["role"] = "system"
    if message.get("tool_calls") and forms.object_arguments:
        prepared["tool_calls"] = [_with_object_arguments(call) for call in message["tool_calls"]]
    return prepared


def texts_of(content: Any, where: str) -> list[str] | None:
    """The text parts of one message's content; None for null content. `where`: its place, for errors. Raises
    RequestError(400) naming the part that is not text."""
    if content is None:
        return None
    if isinstance(content, str):
        return [content]
    if not isinstance(content, list | tuple):
        raise RequestError(f"{where} must be a string or a list of parts", param=where)
    return [_part_text(part, f"{where}[{index}]") for index, part in enumerate(content)]


def _part_text(part: Any, where: str) -> str:
    kind = part.get("type") if isinstance(part, Mapping) else None
    if not isinstance(part, Mapping) or not isinstance(kind, str):
        raise RequestError(f'{where} must be an object with a "type"', param=where)
    if kind not in _TEXT_PARTS:
        named = f"of type {kind}" if kind in _MEDIA_PARTS else "not of a known text type"
        raise RequestError(
            f"{where} is {named}; this model is served for text only. Send parts of type text.", param=where
        )
    text = part.get(_TEXT_PARTS[kind])
    if not isinstance(text, str):
        raise RequestError(f'{where} needs its text as a string in "{_TEXT_PARTS[kind]}"', param=where)
    return text


def _with_object_arguments(call: Any) -> Any:
    """A tool call whose arguments are an object where its JSON text holds one."""
    function = call.get("function") if isinstance(call, Mapping) else None
    arguments = function.get("arguments") if isinstance(function, Mapping) else None
    if not isinstance(arguments, str):
        return call
    try:
        parsed = json.loads(arguments)
    except (ValueError, RecursionError):
        return call
    if not isinstance(parsed, dict):
        return call
    return {**call, "function": {**dict(function or {}), "arguments": parsed}}
