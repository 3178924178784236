"""Ollama's own API: JSON lines of chat and generate, or one object."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headstart.blame.streams import usage as counts
from headstart.blame.streams.parts import Parts, word
from headstart.blame.streams.usage import fields


def take(parts: Parts, payload: Mapping[str, Any]) -> bool:
    """Adds one line. Whether there was content in it."""
    if payload.get("error"):
        parts.fail(payload["error"])
        return False
    message = fields(payload.get("message"))
    content = parts.say(message.get("content")) | parts.say(payload.get("response"))
    content |= parts.think(message.get("thinking")) | parts.think(payload.get("thinking"))
    calls = message.get("tool_calls")
    for call in calls if isinstance(calls, list) else ():
        one = parts.call(len(parts.calls))
        function = fields(fields(call).get("function"))
        one.id, one.name = word(fields(call).get("id")), word(function.get("name"))
        one.add(function.get("arguments"))
        content = True
    if payload.get("done"):
        _end(parts, payload)
    return content


def _end(parts: Parts, payload: Mapping[str, Any]) -> None:
    parts.done = True
    parts.finish = word(payload.get("done_reason")) or None
    parts.usage = counts.ollama(payload)
    parts.server = parts.server or "ollama"
    parts.prefill_s = counts.seconds(payload.get("prompt_eval_duration"), counts.NS_PER_S)
    parts.load_s = counts.seconds(payload.get("load_duration"), counts.NS_PER_S)
