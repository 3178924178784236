"""Rewriting the texts of system prompts, wherever a dialect has them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from headstart.blame.json_paths import below
from headstart.blame.repairs.seen import messages_key, objects, with_item

Rewrite = Callable[[str, str], str | None]
"""From a text and its path to what stands in its place; None takes its block away."""

_ROLES = ("system", "developer")
_FIELDS = ("system", "instructions")


def texts(body: Mapping[str, Any]) -> Iterator[str]:
    """Every text of the system prompt."""
    found: list[str] = []

    def keep(text: str, _: str) -> str:
        found.append(text)
        return text

    rewritten(body, keep)
    yield from found


def rewritten(body: Mapping[str, Any], rewrite: Rewrite) -> Any:
    """`body` with its system texts rewritten; itself where none changed."""
    result: Any = body
    for name in _FIELDS:
        if name in result:
            result = _put(result, name, _content(result[name], name, rewrite))
    key = messages_key(body)
    for place, message in objects(result.get(key)):
        if message.get("role") not in _ROLES or "content" not in message:
            continue
        content = _content(message["content"], f"{key}[{place}].content", rewrite)
        after = _put(message, "content", content)
        if after is not message:
            result = {**result, key: with_item(result[key], place, after)}
    return result


def _put(part: Any, name: str, value: Any) -> Any:
    return part if part[name] is value else {**part, name: value}


def _content(content: Any, path: str, rewrite: Rewrite) -> Any:
    if isinstance(content, str):
        text = rewrite(content, path)
        return content if text == content else text or ""
    if not isinstance(content, list):
        return content
    blocks, changed = [], False
    for place, block in enumerate(content):
        if not isinstance(block, dict) or not isinstance(block.get("text"), str):
            blocks.append(block)
            continue
        text = rewrite(block["text"], below(below(path, place), "text"))
        changed |= text != block["text"]
        if text is not None:
            blocks.append(block if text == block["text"] else {**block, "text": text})
    return blocks if changed else content
