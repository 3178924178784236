"""A reply in the form of OpenAI's Responses API, as events and whole ("Streaming events" in its docs)."""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import AsyncGenerator, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic_core import to_json

from headstart.api.generation import ClientGoneError, Generation, Reply
from headstart.api.responses_store import Store
from headstart.api.responses_types import ResponseRequest
from headstart.api.sse import KEEP_ALIVE
from headstart.api.usage import Accounting, thought_tokens
from headstart.api.work import Closed, Entry, Work, closed
from headstart.chat.replies.events import ArgumentsDelta, CallEnd, CallStart, Event, TextDelta, ThinkingDelta
from headstart.errors import HeadstartError
from headstart.serving.models import ServedModel
from headstart.serving.request import FinishReason

__all__ = ["Answer", "Items", "stream_reply", "whole_reply"]

log = logging.getLogger(__name__)
KEEP_ALIVE_S = 10.0
Said = tuple[str, dict[str, Any]]
"""An event's type, and what it has besides."""


@dataclass(frozen=True)
class Answer:
    """One request to /v1/responses and what its reply needs to know of it. `items`: the conversation."""

    model: ServedModel
    body: ResponseRequest
    items: tuple[dict[str, Any], ...]
    work: Work
    entry: Entry
    store: Store
    created: int = field(default_factory=lambda: int(time.time()))

    def response(self, status: str, output: Sequence[dict[str, Any]], **more: Any) -> dict[str, Any]:
        """The response object."""
        body = self.body
        return {
            "id": self.entry.request_id,
            "object": "response",
            "created_at": self.created,
            "status": status,
            "error": None,
            "incomplete_details": None,
            "instructions": body.instructions,
            "max_output_tokens": body.max_output_tokens,
            "metadata": body.metadata or {},
            "model": self.model.name,
            "output": list(output),
            "parallel_tool_calls": True,
            "previous_response_id": body.previous_response_id,
            "reasoning": {"effort": body.reasoning.effort if body.reasoning else None, "summary": None},
            "store": body.store is not False,
            "temperature": body.temperature,
            "text": {"format": (body.text and body.text.format) or {"type": "text"}},
            "tool_choice": body.tool_choice or "auto",
            "tools": body.tools or [],
            "top_p": body.top_p,
            "truncation": "disabled",
            "usage": None,
            **more,
        }

    def ended(self, reply: Reply, output: Sequence[dict[str, Any]], done: Closed) -> dict[str, Any]:
        """The response of a reply that has ended; kept where the request does not say otherwise."""
        thoughts = [item["content"][0]["text"] for item in output if item["type"] == "reasoning"]
        reasoning = thought_tokens(self.model, reply.tokens, thoughts)
        more: dict[str, Any] = {"usage": usage_of(done.cost, reasoning)}
        status = status_of(reply)
        if status == "incomplete":
            more["incomplete_details"] = {"reason": "max_output_tokens"}
        if done.added:
            more["headstart"] = done.added
        response = self.response(status, output, **more)
        if self.body.store is not False:
            self.store.put(self.entry.tenant, (*self.items, *output), response)
        return response


def status_of(reply: Reply) -> str:
    """How a reply ended, and with it the item that was being written."""
    cut = reply.end is not None and reply.end.reason is FinishReason.LENGTH
    return "incomplete" if cut else "completed"


def usage_of(cost: Accounting, reasoning_tokens: int) -> dict[str, Any]:
    return {
        "input_tokens": cost.prompt_tokens,
        "input_tokens_details": {"cached_tokens": cost.cached_tokens},
        "output_tokens": cost.completion_tokens,
        "output_tokens_details": {"reasoning_tokens": reasoning_tokens},
        "total_tokens": cost.prompt_tokens + cost.completion_tokens,
    }


class Items:
    """Turns what a reply is made of into output items, one open at a time."""

    def __init__(self) -> None:
        self.output: list[dict[str, Any]] = []
        self._open: str | None = None

    def take(self, events: Iterable[Event]) -> Iterator[Said]:
        """The stream's events for `events`; `output` has the items so far."""
        for event in events:
            match event:
                case TextDelta() if event.text:
                    yield from self._begin("message")
                    self._part()["text"] += event.text
                    yield self._at(
                        "response.output_text.delta", delta=event.text, logprobs=[], content_index=0
                    )
                case ThinkingDelta() if event.text:
                    yield from self._begin("reasoning")
                    self._part()["text"] += event.text
                    yield self._at("response.reasoning_text.delta", delta=event.text, content_index=0)
                case CallStart():
                    yield from self.end()
                    yield from self._call(event)
                case ArgumentsDelta():
                    self.output[-1]["arguments"] += event.text
                    yield self._at("response.function_call_arguments.delta", delta=event.text)
                case CallEnd():
                    yield from self.end()

    def end(self, status: str = "completed") -> Iterator[Said]:
        """Closes the item that is open. `status`: whether all of it is there."""
        if self._open is None:
            return
        item, kind = self.output[-1], self._open
        self._open = None
        if kind == "function_call":
            done = {"arguments": item["arguments"], "name": item["name"]}
            yield self._at("response.function_call_arguments.done", **done)
        else:
            name, part = _text_name(kind), dict(item["content"][0])
            more: dict[str, Any] = {"logprobs": []} if kind == "message" else {}
            yield self._at(f"response.{name}.done", text=part["text"], content_index=0, **more)
            yield self._at("response.content_part.done", part=part, content_index=0)
        item["status"] = status
        yield "response.output_item.done", {"output_index": len(self.output) - 1, "item": _copied(item)}

    def _begin(self, kind: str) -> Iterator[Said]:
        if self._open == kind:
            return
        yield from self.end()
        self._open = kind
        item: dict[str, Any] = {"id": _id("msg" if kind == "message" else "rs"), "type": kind}
        more: dict[str, Any] = {"role": "assistant"} if kind == "message" else {"summary": []}
        item |= more
        yield from self._added({**item, "status": "in_progress", "content": []})
        part: dict[str, Any] = {"type": _text_name(kind), "text": ""}
        part |= {"annotations": [], "logprobs": []} if kind == "message" else {}
        self.output[-1]["content"].append(part)
        yield self._at("response.content_part.added", part=dict(part), content_index=0)

    def _call(self, event: CallStart) -> Iterator[Said]:
        self._open = "function_call"
        call = {"call_id": event.id, "name": event.name, "arguments": "", "status": "in_progress"}
        yield from self._added({"id": _id("fc"), "type": "function_call", **call})

    def _added(self, item: dict[str, Any]) -> Iterator[Said]:
        self.output.append(item)
        yield "response.output_item.added", {"output_index": len(self.output) - 1, "item": _copied(item)}

    def _part(self) -> dict[str, Any]:
        part: dict[str, Any] = self.output[-1]["content"][0]
        return part

    def _at(self, kind: str, **more: Any) -> Said:
        return kind, {"item_id": self.output[-1]["id"], "output_index": len(self.output) - 1, **more}


def _text_name(kind: str) -> str:
    return "output_text" if kind == "message" else "reasoning_text"


def _copied(item: dict[str, Any]) -> dict[str, Any]:
    if "content" not in item:
        return dict(item)
    return {**item, "content": [dict(part) for part in item["content"]]}


def _id(kind: str) -> str:
    return f"{kind}_{secrets.token_hex(16)}"


async def whole_reply(answer: Answer, generation: Generation) -> dict[str, Any]:
    """Waits for the reply and gives the response."""
    await generation.run()
    items, splitter = Items(), answer.work.format.splitter(hold=True)
    (reply,) = generation.replies
    text, _ = reply.take()
    for _ in (*items.take([*splitter.feed(text), *splitter.end()]), *items.end(status_of(reply))):
        pass
    done = await closed(answer.model, answer.work, generation, answer.entry, splitter.warnings)
    return answer.ended(reply, items.output, done)


async def stream_reply(
    answer: Answer, generation: Generation, ready: Sequence[Reply]
) -> AsyncGenerator[bytes, None]:
    """The events of the stream. `ready`: replies with news that were taken before headers went out."""
    async with generation:
        items, splitter, numbered = Items(), answer.work.format.splitter(hold=True), _Numbered()

        def told(news: Sequence[Reply]) -> Iterator[bytes]:
            for reply in news:
                yield from map(numbered, items.take(splitter.feed(reply.take()[0])))

        begun = {"response": answer.response("in_progress", [])}
        try:
            yield numbered(("response.created", begun))
            yield numbered(("response.in_progress", begun))
            for event in told(ready):
                yield event
            while not generation.finished:
                news = await generation.news(KEEP_ALIVE_S)
                if not news:
                    yield KEEP_ALIVE
                for event in told(news):
                    yield event
            (reply,) = generation.replies
            for last in (*items.take(splitter.end()), *items.end(status_of(reply))):
                yield numbered(last)
            done = await closed(answer.model, answer.work, generation, answer.entry, splitter.warnings)
            response = answer.ended(reply, items.output, done)
            yield numbered((f"response.{response['status']}", {"response": response}))
        except ClientGoneError:
            return
        except HeadstartError as error:
            log.warning("request %s failed after its stream had begun: %s", answer.entry.request_id, error)
            fault = {"code": "server_error", "message": str(error)}
            failed = answer.response("failed", items.output, error=fault)
            yield numbered(("response.failed", {"response": failed}))


class _Numbered:
    """Events as they are sent, numbered from 0."""

    def __init__(self) -> None:
        self._next = 0

    def __call__(self, said: Said) -> bytes:
        kind, more = said
        value = {"type": kind, "sequence_number": self._next, **more}
        self._next += 1
        return b"event: %s\ndata: %s\n\n" % (kind.encode(), to_json(value))
