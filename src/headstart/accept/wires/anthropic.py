"""POST /v1/messages, Anthropic's format."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from headstart.accept.exchange import Ask
from headstart.accept.wires import Framing, Piece, openai

VERSION = "2023-06-01"


@dataclass(frozen=True)
class Anthropic:
    """Anthropic's messages. It has neither seed nor log-probabilities. The last message is marked for
    caching, as some servers count reused tokens only then."""

    name: str = "anthropic"
    path: str = "/v1/messages"
    chat: bool = True
    scores: bool = False
    framing: Framing = Framing.SSE
    ends_with_done: bool = True

    def headers(self, api_key: str | None) -> dict[str, str]:
        return {"anthropic-version": VERSION} | ({"x-api-key": api_key} if api_key else {})

    def body(self, ask: Ask, model: str | None) -> dict[str, Any]:
        said = [m for m in ask.messages if m.role != "system"]
        body: dict[str, Any] = {
            "max_tokens": ask.max_tokens,
            "temperature": ask.temperature,
            "stream": ask.stream,
            "messages": [_message(m.role, m.content, last=m is said[-1]) for m in said],
        }
        system = "\n".join(m.content for m in ask.messages if m.role == "system")
        if system:
            body["system"] = system
        if ask.model or model:
            body["model"] = ask.model or model
        if ask.stop:
            body["stop_sequences"] = list(ask.stop)
        return body | dict(ask.options)

    def event(self, payload: str) -> Piece:
        data = openai.parse(payload)
        kind = data.get("type")
        if kind == "error" or (kind is None and "error" in data):
            return Piece(error=openai.error_of(data) or "error without a message")
        if kind == "message_start":
            return Piece(**_numbers(openai.mapping(data.get("message")).get("usage")))
        if kind == "content_block_delta":
            delta = openai.mapping(data.get("delta"))
            return Piece(text=str(delta.get("text") or ""), reasoning=str(delta.get("thinking") or ""))
        if kind == "message_delta":
            finish = openai.mapping(data.get("delta")).get("stop_reason")
            return Piece(finish=finish, warnings=openai.warnings(data), **_numbers(data.get("usage")))
        return Piece(done=kind == "message_stop")

    def reply(self, body: bytes) -> Piece:
        data = openai.parse(body)
        if data.get("type") == "error" or "error" in data:
            return Piece(error=openai.error_of(data) or "error without a message")
        blocks = [openai.mapping(block) for block in data.get("content") or ()]
        return Piece(
            text="".join(str(block.get("text") or "") for block in blocks),
            reasoning="".join(str(block.get("thinking") or "") for block in blocks),
            finish=data.get("stop_reason"),
            warnings=openai.warnings(data),
            **_numbers(data.get("usage")),
        )


def _message(role: str, content: str, *, last: bool) -> dict[str, Any]:
    block: dict[str, Any] = {"type": "text", "text": content}
    if last:
        block["cache_control"] = {"type": "ephemeral"}
    return {"role": role, "content": [block]}


def _numbers(usage: Any) -> dict[str, Any]:
    """Prompt tokens are the sum of three; a usage without input_tokens (the last delta's) tells none."""
    told: Mapping[str, Any] = openai.mapping(usage)
    new, read, made = (
        openai.whole(told.get(name))
        for name in ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
    )
    return {
        "prompt_tokens": None if new is None else new + (read or 0) + (made or 0),
        "reused": read,
        "completion_tokens": openai.whole(told.get("output_tokens")),
        "usage": {"usage": dict(told)} if told else {},
    }


WIRE = Anthropic()
