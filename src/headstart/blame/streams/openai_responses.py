"""OpenAI responses: typed events, and the whole response as one object."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headstart.blame.streams import usage as counts
from headstart.blame.streams.parts import Parts, word
from headstart.blame.streams.usage import fields

_TEXT = ("response.output_text.delta", "response.refusal.delta")
_THINKING = ("response.reasoning_text.delta", "response.reasoning_summary_text.delta")
_ARGUMENTS = ("response.function_call_arguments.delta", "response.custom_tool_call_input.delta")
_ENDS = ("response.completed", "response.incomplete", "response.failed", "response.cancelled")
_CALLS = ("function_call", "custom_tool_call")


def take(parts: Parts, payload: Mapping[str, Any]) -> bool:
    """Adds one event, or a whole response. Whether there was content in it."""
    kind = word(payload.get("type"))
    content = False
    if payload.get("object") == "response":
        content = _whole(parts, payload)
    elif kind in _ENDS:
        parts.done = True
        content = _whole(parts, fields(payload.get("response")))
    elif kind == "error" or payload.get("error"):
        parts.fail(payload)
    elif kind in _TEXT:
        content = parts.say(payload.get("delta"))
    elif kind in _THINKING:
        content = parts.think(payload.get("delta"))
    elif kind in _ARGUMENTS:
        content = parts.call(payload.get("output_index")).add(payload.get("delta"))
    elif kind in ("response.output_item.added", "response.output_item.done"):
        content = _item(parts, fields(payload.get("item")), payload.get("output_index"))
    return content


def _whole(parts: Parts, response: Mapping[str, Any]) -> bool:
    """A response object: what the events did not say is taken from it."""
    told = fields(response.get("usage"))
    if told:
        parts.usage = counts.joined(counts.openai(told), parts.usage)
    if response.get("status"):
        reason = fields(response.get("incomplete_details")).get("reason")
        parts.finish = word(reason) or word(response["status"])
        parts.done = True
    if response.get("error"):
        parts.fail(response["error"])
    output = response.get("output")
    items = [fields(item) for item in output] if isinstance(output, list) else []
    heard, thought = bool(parts.text), bool(parts.thinking)
    content = False
    for place, item in enumerate(items):
        content |= _item(parts, item, place)
        for block in _blocks(item, "content") if item.get("type") == "message" and not heard else ():
            content |= parts.say(block.get("text") or block.get("refusal"))
        for block in _thoughts(item) if item.get("type") == "reasoning" and not thought else ():
            content |= parts.think(block.get("text"))
    return content


def _blocks(item: Mapping[str, Any], name: str) -> list[Mapping[str, Any]]:
    blocks = item.get(name)
    return [fields(block) for block in blocks] if isinstance(blocks, list) else []


def _thoughts(item: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return _blocks(item, "content") or _blocks(item, "summary")


def _item(parts: Parts, item: Mapping[str, Any], place: Any) -> bool:
    if item.get("type") not in _CALLS:
        return False
    one = parts.call(place)
    one.id = one.id or word(item.get("call_id")) or word(item.get("id"))
    one.name = one.name or word(item.get("name"))
    arguments = item.get("arguments", item.get("input"))
    if not one.arguments:
        one.add(arguments)
    return True
