"""A reply in the form of Anthropic's Messages API, as events and whole ("Streaming messages" in its docs).

`message_start` goes out with the first of the reply, when its usage is known; until then comments keep the
connection alive.
"""

from __future__ import annotations

import logging
from base64 import b64encode
from collections.abc import AsyncGenerator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from blake3 import blake3
from pydantic_core import from_json, to_json

from headstart.api.anthropic_errors import error_of
from headstart.api.generation import ClientGoneError, Generation, Reply
from headstart.api.sse import KEEP_ALIVE
from headstart.api.work import Closed, Entry, Work, closed
from headstart.chat.replies.events import ArgumentsDelta, CallEnd, CallStart, Event, TextDelta, ThinkingDelta
from headstart.errors import HeadstartError
from headstart.prefix.report import CacheReport
from headstart.serving.models import ServedModel
from headstart.serving.request import Finished, FinishReason

__all__ = ["Answer", "stream_reply", "whole_reply"]

log = logging.getLogger(__name__)
KEEP_ALIVE_S = 10.0


@dataclass(frozen=True)
class Answer:
    """One request to /v1/messages and what its reply needs to know of it."""

    model: ServedModel
    work: Work
    entry: Entry

    def message(self, content: list[dict[str, Any]], usage: dict[str, int]) -> dict[str, Any]:
        return {
            "id": self.entry.request_id,
            "type": "message",
            "role": "assistant",
            "model": self.model.name,
            "content": content,
            "stop_reason": None,
            "stop_sequence": None,
            "usage": usage,
        }


def usage_of(report: CacheReport, output_tokens: int) -> dict[str, int]:
    """The three kinds of input tokens add up to the prompt. All that was read is kept, asked for or not, so
    nothing is counted as read for the cache's sake."""
    return {
        "input_tokens": report.prompt_tokens - report.restored,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": report.restored,
        "output_tokens": output_tokens,
    }


def stop_of(end: Finished, *, called: bool) -> dict[str, Any]:
    """Why a reply ended."""
    if end.reason is FinishReason.LENGTH:
        reason = "max_tokens"
    elif end.stop is not None:
        reason = "stop_sequence"
    else:
        reason = "tool_use" if called else "end_turn"
    return {"stop_reason": reason, "stop_sequence": end.stop if reason == "stop_sequence" else None}


def signature_of(thinking: str) -> str:
    """What stands for Anthropic's signature of a thinking block: clients keep blocks that have one, and send
    it back. Nothing is read from it here; the same thoughts have the same."""
    return b64encode(blake3(thinking.encode("utf-8", "surrogatepass")).digest()).decode()


class Blocks:
    """Turns what a reply is made of into content blocks, one open at a time."""

    def __init__(self) -> None:
        self.content: list[dict[str, Any]] = []
        self.called = False
        self._open: str | None = None
        self._arguments = ""

    def take(self, events: Iterable[Event]) -> Iterator[dict[str, Any]]:
        """The stream's events for `events`; `content` has the blocks so far."""
        for event in events:
            match event:
                case TextDelta() if event.text:
                    yield from self._begin("text", {"type": "text", "text": ""})
                    self.content[-1]["text"] += event.text
                    yield self._delta({"type": "text_delta", "text": event.text})
                case ThinkingDelta() if event.text:
                    yield from self._begin("thinking", {"type": "thinking", "thinking": "", "signature": ""})
                    self.content[-1]["thinking"] += event.text
                    yield self._delta({"type": "thinking_delta", "thinking": event.text})
                case CallStart():
                    yield from self.end()
                    self.called = True
                    call = {"type": "tool_use", "id": event.id, "name": event.name, "input": {}}
                    yield from self._begin("tool_use", call)
                case ArgumentsDelta():
                    self._arguments += event.text
                    yield self._delta({"type": "input_json_delta", "partial_json": event.text})
                case CallEnd():
                    yield from self.end()

    def end(self) -> Iterator[dict[str, Any]]:
        """Closes the block that is open."""
        if self._open is None:
            return
        if self._open == "thinking":
            signature = signature_of(self.content[-1]["thinking"])
            self.content[-1]["signature"] = signature
            yield self._delta({"type": "signature_delta", "signature": signature})
        elif self._open == "tool_use":
            self.content[-1]["input"] = from_json(self._arguments or "{}")
            self._arguments = ""
        self._open = None
        yield {"type": "content_block_stop", "index": len(self.content) - 1}

    def _begin(self, kind: str, block: dict[str, Any]) -> Iterator[dict[str, Any]]:
        if self._open == kind:
            return
        yield from self.end()
        self._open = kind
        self.content.append(block)
        yield {"type": "content_block_start", "index": len(self.content) - 1, "content_block": dict(block)}

    def _delta(self, delta: dict[str, Any]) -> dict[str, Any]:
        return {"type": "content_block_delta", "index": len(self.content) - 1, "delta": delta}


async def whole_reply(answer: Answer, generation: Generation) -> dict[str, Any]:
    """Waits for the reply and gives the message."""
    (end,) = await generation.run()
    blocks, splitter = Blocks(), answer.work.format.splitter(hold=True)
    text, _ = generation.replies[0].take()
    for _ in (*blocks.take([*splitter.feed(text), *splitter.end()]), *blocks.end()):
        pass
    done = await closed(answer.model, answer.work, generation, answer.entry, splitter.warnings)
    message = answer.message(blocks.content, usage_of(end.report, end.completion_tokens))
    return {**message, **stop_of(end, called=blocks.called), **_added(done)}


async def stream_reply(
    answer: Answer, generation: Generation, ready: Sequence[Reply]
) -> AsyncGenerator[bytes, None]:
    """The events of the stream. `ready`: replies with news that were taken before headers went out."""
    async with generation:
        writer = _Writer(answer, generation.replies[0])
        try:
            for event in writer.news(ready):
                yield event
            while not generation.finished:
                news = await generation.news(KEEP_ALIVE_S)
                if not news:
                    yield KEEP_ALIVE
                for event in writer.news(news):
                    yield event
            for event in writer.rest():
                yield event
            done = await closed(answer.model, answer.work, generation, answer.entry, writer.warnings)
            for event in writer.last(done):
                yield event
        except ClientGoneError:
            return
        except HeadstartError as error:
            log.warning("request %s failed after its stream had begun: %s", answer.entry.request_id, error)
            yield _event(error_of(error)[1])


class _Writer:
    def __init__(self, answer: Answer, reply: Reply) -> None:
        self._answer = answer
        self._reply = reply
        self._blocks = Blocks()
        self._splitter = answer.work.format.splitter(hold=True)
        self._begun = False

    @property
    def warnings(self) -> list[str]:
        return self._splitter.warnings

    def news(self, news: Sequence[Reply]) -> Iterator[bytes]:
        if not news or not self._reply.text:
            return
        text, _ = self._reply.take()
        yield from self._told(self._splitter.feed(text))

    def rest(self) -> Iterator[bytes]:
        """What the end of the reply makes certain."""
        text, _ = self._reply.take()
        yield from self._told([*self._splitter.feed(text), *self._splitter.end()])

    def _told(self, events: Sequence[Event]) -> Iterator[bytes]:
        if events:
            yield from self._begin()
            yield from map(_event, self._blocks.take(events))

    def last(self, done: Closed) -> Iterator[bytes]:
        end = self._reply.end
        assert end is not None
        yield from self._begin()
        yield from map(_event, self._blocks.end())
        stop = {**stop_of(end, called=self._blocks.called)}
        usage = usage_of(end.report, end.completion_tokens)
        yield _event({"type": "message_delta", "delta": stop, "usage": usage, **_added(done)})
        yield _event({"type": "message_stop"})

    def _begin(self) -> Iterator[bytes]:
        report = self._reply.report
        if self._begun or report is None:
            return
        self._begun = True
        yield _event({"type": "message_start", "message": self._answer.message([], usage_of(report, 1))})
        yield _event({"type": "ping"})


def _added(done: Closed) -> dict[str, Any]:
    return {"headstart": done.added} if done.added else {}


def _event(value: dict[str, Any]) -> bytes:
    return b"event: %s\ndata: %s\n\n" % (str(value["type"]).encode(), to_json(value))
