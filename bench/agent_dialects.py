"""Requests of an agent as its dialect writes them, and what replies say they cost.

Arguments of calls that come back are written anew, as most clients do: other spaces, another order of keys.
"""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol
from urllib.parse import urlsplit

from agent_sessions import Call, Message, Request

Body = dict[str, Any]
MAX_TOKENS = 400


@dataclass(frozen=True)
class Cost:
    """Tokens of the prompt and those of them that were not read; seconds until the first of the reply."""

    prompt_tokens: int
    cached_tokens: int
    first_token_s: float


class Dialect(Protocol):
    """One API. `begins(event)`: whether something of the reply is in it. `usage(event)`: prompt and cached
    tokens, where it tells them."""

    name: str
    path: str

    def body(self, request: Request) -> Body: ...

    def begins(self, event: Body) -> bool: ...

    def usage(self, event: Body) -> tuple[int, int] | None: ...


def ask(url: str, dialect: Dialect, request: Request, **fields: Any) -> Cost:
    """Sends a request and reads its stream. `fields` go into the body. A reply of which nothing is seen is
    timed by its end. Raises RuntimeError where it fails."""
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=1800)
    body = json.dumps({**dialect.body(request), "stream": True, **fields}).encode()
    connection.connect()
    started_s = time.perf_counter()
    connection.request("POST", dialect.path, body, {"Content-Type": "application/json"})
    response = connection.getresponse()
    if response.status != http.HTTPStatus.OK:
        raise RuntimeError(f"{url}{dialect.path} answered {response.status}: {response.read(2000)!r}")
    first_s, usage = None, None
    for event in _events(response):
        if first_s is None and dialect.begins(event):
            first_s = time.perf_counter() - started_s
        usage = dialect.usage(event) or usage
    connection.close()
    if usage is None:
        raise RuntimeError(f"{url}{dialect.path}: the reply to {request.when!r} does not tell its cost")
    return Cost(*usage, first_s or time.perf_counter() - started_s)


def _events(response: http.client.HTTPResponse) -> Iterator[Body]:
    for line in response:
        text = line.removeprefix(b"data: ").strip()
        if text.startswith(b"{"):
            event = json.loads(text)
            if event.get("error"):
                raise RuntimeError(f"the server failed: {event['error']}")
            yield event


def rewritten(call: Call) -> str:
    """Arguments as a client writes them that has parsed them."""
    return json.dumps(dict(sorted(call.arguments.items(), reverse=True)), separators=(",", ":"))


class OpenAIChat:
    name, path = "openai", "/v1/chat/completions"

    def body(self, request: Request) -> Body:
        tools = [{"type": "function", "function": tool} for tool in request.tools]
        messages = [self._message(one) for one in request.messages]
        options = {"include_usage": True}
        return _filled(
            model="m", messages=messages, tools=tools, max_tokens=MAX_TOKENS, stream_options=options
        )

    def _message(self, one: Message) -> Body:
        calls = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": rewritten(call)}}
            for call in one.calls
        ]
        said = _filled(reasoning_content=one.thinking, tool_calls=calls, tool_call_id=one.call_id)
        return {"role": one.role, "content": one.text, **said}

    def begins(self, event: Body) -> bool:
        deltas = [choice.get("delta") or {} for choice in event.get("choices", [])]
        return any(
            delta.get("content") or delta.get("reasoning_content") or delta.get("tool_calls")
            for delta in deltas
        )

    def usage(self, event: Body) -> tuple[int, int] | None:
        usage = event.get("usage")
        if not usage:
            return None
        return usage["prompt_tokens"], (usage.get("prompt_tokens_details") or {}).get("cached_tokens", 0)


class Responses:
    name, path = "responses", "/v1/responses"

    def body(self, request: Request) -> Body:
        system, *others = request.messages
        tools = [{"type": "function", **tool} for tool in request.tools]
        items = [item for one in others for item in self._items(one)]
        return _filled(
            model="m", instructions=system.text, input=items, tools=tools, max_output_tokens=MAX_TOKENS
        )

    def _items(self, one: Message) -> Iterator[Body]:
        if one.role == "tool":
            yield {"type": "function_call_output", "call_id": one.call_id, "output": one.text}
            return
        if one.thinking:
            content = [{"type": "reasoning_text", "text": one.thinking}]
            yield {"type": "reasoning", "summary": [], "content": content}
        if one.text:
            kind = "output_text" if one.role == "assistant" else "input_text"
            content = [{"type": kind, "text": one.text}]
            yield {"type": "message", "role": one.role, "content": content}
        for call in one.calls:
            named = {"call_id": call.id, "name": call.name, "arguments": rewritten(call)}
            yield {"type": "function_call", **named}

    def begins(self, event: Body) -> bool:
        kind = event.get("type", "")
        return kind.endswith(".delta") or kind == "response.output_item.added"

    def usage(self, event: Body) -> tuple[int, int] | None:
        usage = (event.get("response") or {}).get("usage")
        return (usage["input_tokens"], usage["input_tokens_details"]["cached_tokens"]) if usage else None


class AnthropicMessages:
    name, path = "anthropic", "/v1/messages"

    def body(self, request: Request) -> Body:
        system, *others = request.messages
        tools = [
            {"name": tool["name"], "description": tool["description"], "input_schema": tool["parameters"]}
            for tool in request.tools
        ]
        blocks = [{"type": "text", "text": system.text, "cache_control": {"type": "ephemeral"}}]
        messages: list[Body] = []
        for one in others:
            role, content = "user" if one.role == "tool" else one.role, list(self._blocks(one))
            if messages and messages[-1]["role"] == role == "user":
                messages[-1]["content"] += content
            else:
                messages.append({"role": role, "content": content})
        return _filled(model="m", max_tokens=MAX_TOKENS, system=blocks, messages=messages, tools=tools)

    def _blocks(self, one: Message) -> Iterator[Body]:
        if one.role == "tool":
            yield {"type": "tool_result", "tool_use_id": one.call_id, "content": one.text}
            return
        if one.thinking:
            yield {"type": "thinking", "thinking": one.thinking, "signature": "none"}
        if one.text:
            yield {"type": "text", "text": one.text}
        for call in one.calls:
            yield {
                "type": "tool_use",
                "id": call.id,
                "name": call.name,
                "input": json.loads(rewritten(call)),
            }

    def begins(self, event: Body) -> bool:
        return event.get("type") in ("content_block_start", "content_block_delta")

    def usage(self, event: Body) -> tuple[int, int] | None:
        usage = (event.get("message") or {}).get("usage") or {}
        if "input_tokens" not in usage:
            return None
        cached = usage.get("cache_read_input_tokens") or 0
        return usage["input_tokens"] + cached + (usage.get("cache_creation_input_tokens") or 0), cached


class Ollama:
    name, path = "ollama", "/api/chat"

    def body(self, request: Request) -> Body:
        tools = [{"type": "function", "function": tool} for tool in request.tools]
        messages = [self._message(one) for one in request.messages]
        return _filled(model="m", messages=messages, tools=tools, options={"num_predict": MAX_TOKENS})

    def _message(self, one: Message) -> Body:
        calls = [
            {"function": {"name": call.name, "arguments": json.loads(rewritten(call))}, "id": call.id}
            for call in one.calls
        ]
        return {
            "role": one.role,
            "content": one.text,
            **_filled(thinking=one.thinking, tool_calls=calls, tool_call_id=one.call_id),
        }

    def begins(self, event: Body) -> bool:
        said = event.get("message") or {}
        return bool(said.get("content") or said.get("thinking") or said.get("tool_calls"))

    def usage(self, event: Body) -> tuple[int, int] | None:
        if not event.get("done"):
            return None
        return event["prompt_eval_count"], event.get("prompt_eval_cached_count", 0)


DIALECTS: dict[str, Dialect] = {
    one.name: one for one in (OpenAIChat(), Responses(), AnthropicMessages(), Ollama())
}


def _filled(**fields: Any) -> Body:
    """The fields that hold something."""
    return {name: value for name, value in fields.items() if value not in ("", [], (), None)}


def tokens_of(url: str, dialect: OpenAIChat, request: Request) -> list[int]:
    """The prompt's tokens, as the server itself renders and encodes it (llama.cpp's endpoints)."""
    body = {key: value for key, value in dialect.body(request).items() if key in ("messages", "tools")}
    prompt = post(url, "/apply-template", body)["prompt"]
    return list(
        post(url, "/tokenize", {"content": prompt, "add_special": True, "parse_special": True})["tokens"]
    )


def post(url: str, path: str, body: Body) -> Body:
    """A request whose reply is one JSON object."""
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=300)
    connection.request("POST", path, json.dumps(body).encode(), {"Content-Type": "application/json"})
    response = connection.getresponse()
    said = response.read()
    connection.close()
    if response.status != http.HTTPStatus.OK:
        raise RuntimeError(f"{url}{path} answered {response.status}: {said[:2000]!r}")
    answer: Body = json.loads(said)
    return answer


def common(one: Sequence[int], other: Sequence[int]) -> int:
    """Tokens with which both begin."""
    least = min(len(one), len(other))
    return next((at for at in range(least) if one[at] != other[at]), least)
