"""A reply in the form of Ollama's API: JSON lines as they come, or one object."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from pydantic_core import from_json, to_json

from headstart.api.generation import ClientGoneError, Generation, Reply
from headstart.api.usage import Accounting
from headstart.api.work import Closed, Entry, Work, closed
from headstart.chat.replies.events import ArgumentsDelta, CallEnd, CallStart, Event, TextDelta, ThinkingDelta
from headstart.errors import HeadstartError
from headstart.serving.models import ServedModel
from headstart.serving.request import Finished, FinishReason

__all__ = ["NDJSON", "Answer", "chat_part", "generate_part", "loaded", "stream_reply", "whole_reply"]

log = logging.getLogger(__name__)
NDJSON = "application/x-ndjson"
WAIT_S = 3600.0
Part = Callable[["Said"], dict[str, Any]]


@dataclass(frozen=True)
class Said:
    """What came of a reply: text, thinking, and calls that are complete."""

    text: str = ""
    thinking: str = ""
    calls: tuple[dict[str, Any], ...] = ()

    def __bool__(self) -> bool:
        return bool(self.text or self.thinking or self.calls)


def chat_part(said: Said) -> dict[str, Any]:
    """What /api/chat adds to a line."""
    message: dict[str, Any] = {"role": "assistant", "content": said.text}
    if said.thinking:
        message["thinking"] = said.thinking
    if said.calls:
        message["tool_calls"] = list(said.calls)
    return {"message": message}


def generate_part(said: Said) -> dict[str, Any]:
    """What /api/generate adds to a line."""
    return {"response": said.text} | ({"thinking": said.thinking} if said.thinking else {})


@dataclass(frozen=True)
class Answer:
    """One request and what its reply needs to know of it."""

    model: ServedModel
    work: Work
    entry: Entry
    part: Part

    def line(self, said: Said, **more: Any) -> dict[str, Any]:
        return {"model": self.model.name, "created_at": now(), **self.part(said), "done": False, **more}


def now() -> str:
    return datetime.now(UTC).isoformat().replace("+00:00", "Z")


def loaded(model: ServedModel, part: Part, reason: str) -> dict[str, Any]:
    """The answer to a request without a prompt, which asks for the model to be loaded, or let go."""
    head = {"model": model.name, "created_at": now()}
    return {**head, **part(Said()), "done_reason": reason, "done": True}


class Calls:
    """Puts what a reply is made of together; calls are told when they are complete, as Ollama tells them."""

    def __init__(self) -> None:
        self._name = ""
        self._arguments = ""

    def take(self, events: Iterable[Event]) -> Said:
        text, thinking, calls = "", "", []
        for event in events:
            match event:
                case TextDelta():
                    text += event.text
                case ThinkingDelta():
                    thinking += event.text
                case CallStart():
                    self._name, self._arguments = event.name, ""
                case ArgumentsDelta():
                    self._arguments += event.text
                case CallEnd():
                    arguments = from_json(self._arguments or "{}")
                    calls.append({"function": {"name": self._name, "arguments": arguments}})
        return Said(text, thinking, tuple(calls))


async def whole_reply(answer: Answer, generation: Generation) -> dict[str, Any]:
    """Waits for the reply and gives its only object."""
    (end,) = await generation.run()
    text, _ = generation.replies[0].take()
    splitter = answer.work.format.splitter(hold=True)
    said = Calls().take([*splitter.feed(text), *splitter.end()])
    done = await closed(answer.model, answer.work, generation, answer.entry, splitter.warnings)
    return answer.line(said, **_last(end, done))


async def stream_reply(
    answer: Answer, generation: Generation, ready: Sequence[Reply]
) -> AsyncGenerator[bytes, None]:
    """The lines. `ready`: replies with news that were taken before headers went out."""
    async with generation:
        calls, splitter = Calls(), answer.work.format.splitter(hold=True)

        def told(news: Sequence[Reply]) -> Iterable[bytes]:
            for reply in news:
                if said := calls.take(splitter.feed(reply.take()[0])):
                    yield _line(answer.line(said))

        try:
            for line in told(ready):
                yield line
            while not generation.finished:
                for line in told(await generation.news(WAIT_S)):
                    yield line
            if said := calls.take(splitter.end()):
                yield _line(answer.line(said))
            (end,) = generation.ends()
            done = await closed(answer.model, answer.work, generation, answer.entry, splitter.warnings)
            yield _line(answer.line(Said(), **_last(end, done)))
        except ClientGoneError:
            return
        except HeadstartError as error:
            log.warning("request %s failed after its stream had begun: %s", answer.entry.request_id, error)
            yield _line({"error": str(error)})


def _last(end: Finished, done: Closed) -> dict[str, Any]:
    reason = "length" if end.reason is FinishReason.LENGTH else "stop"
    added = {"headstart": done.added} if done.added else {}
    return {"done": True, "done_reason": reason, **counts(done.cost), **added}


def counts(cost: Accounting) -> dict[str, int]:
    """Tokens, and nanoseconds. `prompt_eval_count` is the whole prompt, `prompt_eval_cached_count` what of it
    was not computed."""
    return {
        "total_duration": round(cost.total_s * 1e9),
        "load_duration": round(cost.load_s * 1e9),
        "prompt_eval_count": cost.prompt_tokens,
        "prompt_eval_cached_count": cost.cached_tokens,
        "prompt_eval_duration": round(cost.prefill_s * 1e9),
        "eval_count": cost.completion_tokens,
        "eval_duration": round(cost.decode_s * 1e9),
    }


def _line(value: dict[str, Any]) -> bytes:
    return to_json(value) + b"\n"
