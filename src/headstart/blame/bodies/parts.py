"""What the dialects have in common: content as a string or as blocks, tools, media, options."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from headstart.blame.prompt import Kind, Piece

SYSTEM_ROLES = ("system", "developer")
_TEXT_BLOCKS = {
    "text": "text",
    "input_text": "text",
    "output_text": "text",
    "reasoning_text": "text",
    "summary_text": "text",
    "refusal": "refusal",
}
# On a tool, these are for the provider; no template renders them.
_UNRENDERED = ("cache_control", "eager_input_streaming")
# Top-level fields that can change what a server does with the prompt.
_OPTIONS = (
    "keep_alive",
    "truncate",
    "shift",
    "think",
    "thinking",
    "reasoning",
    "reasoning_effort",
    "output_config",
    "context_management",
    "tool_choice",
    "response_format",
    "format",
    "chat_template_kwargs",
    "cache_prompt",
    "cache_salt",
    "id_slot",
    "lora",
    "raw",
    "template",
    "prompt_cache_key",
    "previous_response_id",
    "conversation",
)
_NATIVE_OPTIONS = ("num_ctx", "num_batch", "num_keep", "num_gpu")


def as_json(value: Any) -> str:
    """`value` as templates write it: keys in the client's order, a space after commas and colons."""
    return json.dumps(value, ensure_ascii=False)


def digest(value: Any) -> str:
    """A short name for bytes that are no text."""
    text = value if isinstance(value, str) else as_json(value)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def listed(body: Mapping[str, Any], name: str) -> list[Any]:
    """A list of the body; [] where it is missing or null. Raises ValueError."""
    value = body.get(name)
    if value is None:
        return []
    if not isinstance(value, list):
        raise ValueError(f"`{name}` is {type(value).__name__}; expected a list.")
    return value


def objects(body: Mapping[str, Any], name: str) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """The objects of a list of the body, numbered. Raises ValueError naming the first that is none."""
    for index, item in enumerate(listed(body, name)):
        if not isinstance(item, Mapping):
            raise ValueError(f"`{name}[{index}]` is {type(item).__name__}; expected an object.")
        yield index, item


def text_of(value: Any) -> str:
    """A value that should be text: as it is, else its JSON; nothing for null."""
    if value is None:
        return ""
    return value if isinstance(value, str) else as_json(value)


def tool_pieces(body: Mapping[str, Any]) -> Iterator[Piece]:
    """The tools, whatever they are: functions, namespaces, built-in ones without a name."""
    for index, tool in objects(body, "tools"):
        kept = {key: value for key, value in tool.items() if key not in _UNRENDERED}
        function = tool.get("function")
        named = function if isinstance(function, Mapping) else tool
        name = text_of(named.get("name") or tool.get("type"))
        yield Piece(Kind.TOOL, f"tools[{index}]", as_json(kept), name=name, raw=tool)


def kind_for(role: str) -> Kind:
    if role in SYSTEM_ROLES:
        return Kind.SYSTEM
    return Kind.RESULT if role in ("tool", "function") else Kind.TEXT


def content_pieces(
    content: Any, path: str, role: str, message: int | None, *, kind: Kind | None = None, id: str = ""
) -> Iterator[Piece]:
    """Text and media of a content: a string, null, or blocks. Empty texts show nothing in a prompt."""
    kind = kind or kind_for(role)
    if isinstance(content, Mapping):
        content = [content]
    if not isinstance(content, list):
        if text := text_of(content):
            yield Piece(kind, path, text, role, message, id=id, raw=content)
        return
    for index, block in enumerate(content):
        yield from block_pieces(block, f"{path}[{index}]", role, message, kind, id=id)


def block_pieces(
    block: Any, path: str, role: str, message: int | None, kind: Kind, *, id: str = ""
) -> Iterator[Piece]:
    """One text or media block."""
    if not isinstance(block, Mapping):
        if text := text_of(block):
            yield Piece(kind, path, text, role, message, id=id, raw=block)
        return
    field = _TEXT_BLOCKS.get(text_of(block.get("type")), "text" if "text" in block else None)
    if field is None:
        yield media_piece(block, path, role, message)
    elif text := text_of(block.get(field)):
        yield Piece(kind, f"{path}.{field}", text, role, message, id=id, raw=block.get(field))


def media_piece(block: Any, path: str, role: str, message: int | None) -> Piece:
    """An image, a sound, a file, or a block that is not known: its digest, without ids and cache markers."""
    kind_name = text_of(block.get("type")) if isinstance(block, Mapping) else "media"
    kept = block
    if isinstance(block, Mapping):
        kept = {key: value for key, value in block.items() if key not in ("cache_control", "id", "detail")}
    return Piece(Kind.MEDIA, path, f"{kind_name} {digest(kept)}", role, message, name=kind_name, raw=block)


def present(pieces: Iterable[Piece], path: str, role: str, message: int) -> Iterator[Piece]:
    """The pieces of a message; one empty piece where it has none, as the message itself is rendered."""
    some = False
    for piece in pieces:
        some = True
        yield piece
    if not some:
        yield Piece(kind_for(role), path, "", role, message)


def shape_of(content: Any) -> str:
    if content is None:
        return "null"
    return "blocks" if isinstance(content, list) else "string"


def options_of(body: Mapping[str, Any], more: Sequence[str] = ()) -> dict[str, Any]:
    """What else of the body could change the prompt or its cache; Ollama's options by their own names."""
    found = {name: body[name] for name in (*_OPTIONS, *more) if body.get(name) is not None}
    native = body.get("options")
    if isinstance(native, Mapping):
        found |= {name: native[name] for name in _NATIVE_OPTIONS if native.get(name) is not None}
    return found
