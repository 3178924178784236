"""Anthropic messages: block events, and the whole message as one object."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headstart.blame.streams import usage as counts
from headstart.blame.streams.parts import Parts, word
from headstart.blame.streams.usage import fields


class Messages:
    """Adds payloads to `parts`. Counts come in two events; the later one may correct the earlier."""

    def __init__(self) -> None:
        self._told: dict[str, Any] = {}

    def take(self, parts: Parts, payload: Mapping[str, Any]) -> bool:
        """Adds one event, or a whole message. Whether there was content in it."""
        kind = payload.get("type")
        if kind == "error" or payload.get("error"):
            parts.fail(payload)
        elif kind == "message_start":
            self._account(parts, fields(fields(payload.get("message")).get("usage")))
        elif kind == "message_delta":
            self._end(parts, fields(payload.get("delta")))
            self._account(parts, fields(payload.get("usage")))
        elif kind == "message_stop":
            parts.done = True
        elif kind == "content_block_start":
            return _block(parts, fields(payload.get("content_block")), payload.get("index"))
        elif kind == "content_block_delta":
            return _delta(parts, fields(payload.get("delta")), payload.get("index"))
        elif kind == "content_block_stop":
            _close(parts, payload.get("index"))
        elif kind == "message":
            return self._whole(parts, payload)
        return False

    def _whole(self, parts: Parts, message: Mapping[str, Any]) -> bool:
        blocks = message.get("content")
        content = False
        for index, block in enumerate(blocks if isinstance(blocks, list) else ()):
            content |= _block(parts, fields(block), index)
            _close(parts, index)
        self._end(parts, message)
        self._account(parts, fields(message.get("usage")))
        parts.done = True
        return content

    def _end(self, parts: Parts, delta: Mapping[str, Any]) -> None:
        parts.finish = word(delta.get("stop_reason")) or parts.finish

    def _account(self, parts: Parts, told: Mapping[str, Any]) -> None:
        self._told |= {name: value for name, value in told.items() if value is not None}
        parts.usage = counts.anthropic(self._told)


def _block(parts: Parts, block: Mapping[str, Any], index: Any) -> bool:
    kind = block.get("type")
    if kind == "text":
        return parts.say(block.get("text"))
    if kind == "thinking":
        return parts.think(block.get("thinking"))
    if kind in ("tool_use", "server_tool_use"):
        one = parts.call(index)
        one.id, one.name = word(block.get("id")), word(block.get("name"))
        # A stream opens with an empty object and sends the text after it.
        if block.get("input"):
            one.add(block["input"])
        return True
    return False


def _delta(parts: Parts, delta: Mapping[str, Any], index: Any) -> bool:
    kind = delta.get("type")
    if kind == "text_delta":
        return parts.say(delta.get("text"))
    if kind == "thinking_delta":
        return parts.think(delta.get("thinking"))
    if kind == "input_json_delta":
        one = parts.call(index)
        if not one.exact:
            one.arguments, one.exact = [], True
        return one.add(delta.get("partial_json"))
    return False


def _close(parts: Parts, index: Any) -> None:
    """A call whose arguments were never sent has none: an empty object, which nobody generated as text."""
    one = parts.calls.get(index)
    if one is not None and not one.arguments:
        one.add({})
