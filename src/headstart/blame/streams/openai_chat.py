"""OpenAI chat and text completions: chunks and whole replies, with what llama-server adds; and its own
completions, which have no choices."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headstart.blame.streams import usage as counts
from headstart.blame.streams.parts import Parts, word
from headstart.blame.streams.usage import fields


def take(parts: Parts, payload: Mapping[str, Any]) -> bool:
    """Adds one payload. Whether there was content in it: text, thought or a piece of a call."""
    if payload.get("error"):
        parts.fail(payload["error"])
    content = False
    choices = payload.get("choices")
    for choice in choices if isinstance(choices, list) else ():
        if fields(choice).get("index", 0) == 0:
            content |= _choice(parts, fields(choice))
    if choices is None and isinstance(payload.get("stop"), bool):
        content |= parts.say(payload.get("content"))
        parts.done = parts.done or payload["stop"]
    _account(parts, payload)
    return content


def _choice(parts: Parts, choice: Mapping[str, Any]) -> bool:
    if choice.get("finish_reason"):
        parts.finish = word(choice["finish_reason"])
        parts.done = True
    message = fields(choice.get("delta")) or fields(choice.get("message"))
    content = parts.say(choice.get("text")) | parts.say(message.get("content"))
    content |= parts.say(message.get("refusal"))
    # Both names are in use, and some servers send both with the same text.
    content |= parts.think(message.get("reasoning_content") or message.get("reasoning"))
    calls = message.get("tool_calls")
    for place, call in enumerate(calls if isinstance(calls, list) else ()):
        content |= _call(parts, fields(call), place)
    return content


def _call(parts: Parts, call: Mapping[str, Any], place: int) -> bool:
    key = call.get("index")
    if key is None:
        # Without an index a new id begins a call, and a piece without one goes on with the last.
        key = call.get("id") or (next(reversed(parts.calls)) if parts.calls else place)
    one = parts.call(key)
    one.id = one.id or word(call.get("id"))
    function = fields(call.get("function")) or fields(call.get("custom"))
    name = word(function.get("name"))
    if name and not one.name:
        one.name = name
    return one.add(function.get("arguments", function.get("input"))) or bool(name)


def _account(parts: Parts, payload: Mapping[str, Any]) -> None:
    told = fields(payload.get("usage"))
    if told:
        parts.usage = counts.joined(counts.openai(told), parts.usage)
        if "model_load_duration" in told:
            parts.server = "headstart"
            parts.load_s = counts.seconds(told["model_load_duration"], 1)
    timings = fields(payload.get("timings"))
    if timings:
        parts.usage = counts.joined(parts.usage, counts.llama_timings(timings))
        parts.prefill_s = counts.seconds(timings.get("prompt_ms"), counts.MS_PER_S)
        parts.server = parts.server or "llama-server"
    progress = fields(payload.get("prompt_progress"))
    if progress:
        parts.usage = counts.joined(parts.usage, counts.progress(progress))
        parts.server = parts.server or "llama-server"
    if payload.get("system_fingerprint") == "fp_ollama":
        parts.server = "ollama"
