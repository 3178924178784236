"""Replies and requests changed on their way."""

from __future__ import annotations

import json
from collections.abc import Callable, MutableMapping
from dataclasses import replace
from typing import Any

from headstart.errors import EngineError
from headstart.lab.defect import App, Defect, Message
from headstart.lab.front import Receive, Send, json_object, replayed, whole_body
from headstart.lab.rewriting import Json, rewriting
from headstart.prefix.tokens import TokenRun
from headstart.serving.models import Generates
from headstart.serving.request import Delta, Event, Finished, GenerationRequest

CONTEXT_CHARACTERS = 4000
LONG_TOKENS, LONG_BODY_BYTES = 700, 1000
"""Shorter prompts are served well by the defects that would else show before any gate."""
_ENDS = 48
_EVERY = 4
WELL = 20


class _Through:
    """A scheduler that passes everything on."""

    def __init__(self, scheduler: Generates) -> None:
        self._scheduler = scheduler

    def submit(self, request: GenerationRequest, sink: Callable[[Event], None]) -> Any:
        return self._scheduler.submit(request, sink)

    def cancel(self, ticket: Any) -> None:
        self._scheduler.cancel(ticket)


class _KnowsRepeats(_Through):
    def __init__(self, scheduler: Generates) -> None:
        super().__init__(scheduler)
        self._seen: set[bytes] = set()

    def repeated(self, prompt: TokenRun) -> bool:
        """Whether this prompt was asked before; from now on it was."""
        key = prompt.tobytes()
        known = key in self._seen
        self._seen.add(key)
        return known


class _EmptyRepeats(_KnowsRepeats):
    def submit(self, request: GenerationRequest, sink: Callable[[Event], None]) -> Any:
        if not self.repeated(request.prompt) or not request.use_cache:
            return super().submit(request, sink)

        def silent(event: Event) -> None:
            if isinstance(event, Finished):
                event = replace(event, tail="", completion_tokens=0)
            if not isinstance(event, Delta):
                sink(event)

        return super().submit(request, silent)


class EmptyOnRepeat(Defect):
    name = "empty-on-repeat"
    title = "the second time a prompt is sent, the reply is empty"
    caught_by = ("exact_repeat",)

    def scheduler(self, scheduler: Generates) -> Generates:
        return _EmptyRepeats(scheduler)


class _FailingRepeats(_KnowsRepeats):
    def submit(self, request: GenerationRequest, sink: Callable[[Event], None]) -> Any:
        long = len(request.prompt) >= LONG_TOKENS
        if self.repeated(request.prompt) and request.use_cache and long:
            raise EngineError("stored state could not be put back")
        return super().submit(request, sink)


class ErrorOnRepeat(Defect):
    name = "error-on-repeat"
    title = "the second time a long prompt is sent, the server answers 500"
    caught_by = ("exact_repeat",)

    def scheduler(self, scheduler: Generates) -> Generates:
        return _FailingRepeats(scheduler)


class _OldReplies(_Through):
    """Answers a prompt that begins and ends like an earlier one of its length with that one's words."""

    def __init__(self, scheduler: Generates) -> None:
        super().__init__(scheduler)
        self._said: dict[tuple[int, bytes, bytes], tuple[bytes, list[Delta]]] = {}

    def submit(self, request: GenerationRequest, sink: Callable[[Event], None]) -> Any:
        prompt = request.prompt
        key = (len(prompt), prompt[:_ENDS].tobytes(), prompt[-_ENDS:].tobytes())
        owner, said = self._said.setdefault(key, (prompt.tobytes(), []))
        if owner == prompt.tobytes():

            def kept(event: Event) -> None:
                if isinstance(event, Delta):
                    said.append(event)
                sink(event)

            return super().submit(request, kept)
        left = list(said)

        def old(event: Event) -> None:
            sink(left.pop(0) if isinstance(event, Delta) and left else event)

        return super().submit(request, old)


class OldAnswer(Defect):
    name = "old-answer"
    title = "after an edit in the middle, the answer is still the old text's"
    caught_by = ("middle_edit",)

    def scheduler(self, scheduler: Generates) -> Generates:
        return _OldReplies(scheduler)


class FrontTruncation(Defect):
    name = "front-truncation"
    title = "a prompt over the context loses its first half without a word"
    caught_by = ("truncation",)

    def app(self, app: App) -> App:
        def cut(asked: Json) -> Json:
            if isinstance(asked.get("prompt"), str):
                asked["prompt"] = _last_half(asked["prompt"])
            for message in asked.get("messages") or ():
                if isinstance(message.get("content"), str):
                    message["content"] = _last_half(message["content"])
            return asked

        return rewriting(app, asked=cut)


def _last_half(text: str) -> str:
    return text[-CONTEXT_CHARACTERS // 2 :] if len(text) > CONTEXT_CHARACTERS else text


class LimitIgnored(Defect):
    name = "limit-ignored"
    title = "max_tokens is not honoured: every reply is 8 tokens longer"
    caught_by = ("knobs",)

    def app(self, app: App) -> App:
        def longer(asked: Json) -> Json:
            for name in ("max_tokens", "max_completion_tokens"):
                if isinstance(asked.get(name), int):
                    asked[name] += 8
            return asked

        return rewriting(app, asked=longer)


class OptionsSwallowed(Defect):
    name = "options-swallowed"
    title = "options that are not known are ignored without a word"
    caught_by = ("knobs",)

    def app(self, app: App) -> App:
        def quiet(_: Json, payload: Json) -> Json:
            if isinstance(payload.get("headstart"), dict):
                payload["headstart"].pop("warnings", None)
            return payload

        return rewriting(app, answered=quiet)


class BrokenStream(Defect):
    name = "broken-stream"
    title = f"after {WELL} good streams, every stream has an event that is cut off in its middle"
    caught_by = ("cold", "exact_repeat", "honesty")

    def __init__(self) -> None:
        self._streams = 0

    def app(self, app: App) -> App:
        async def broken(scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
            sent = 0

            async def cut(message: Message) -> None:
                nonlocal sent
                body = message.get("body", b"")
                if body.startswith(b"data: {"):
                    sent += 1
                    self._streams += sent == 1
                    if sent == _EVERY and self._streams > WELL:
                        message = {**message, "body": body[: len(body) // 2] + b"\n\n"}
                await send(message)

            await app(scope, receive, cut)

        return broken


class DropsRepeats(Defect):
    name = "drops-repeats"
    title = "the second time a long request is sent, the connection ends in the middle of the reply"
    caught_by = ("exact_repeat",)

    def __init__(self) -> None:
        self._seen: set[str] = set()

    def app(self, app: App) -> App:
        async def dropping(scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
            if scope["type"] != "http" or not scope["path"].endswith("/completions"):
                await app(scope, receive, send)
                return
            body = await whole_body(receive)
            asked = json_object(body)
            key = json.dumps([asked.get("prompt"), asked.get("messages")])
            known = (
                key in self._seen and asked.get("cache_prompt") is not False and len(body) >= LONG_BODY_BYTES
            )
            self._seen.add(key)
            sent = 0

            async def cut(message: Message) -> None:
                nonlocal sent
                sent += 1
                if known and sent == 2:
                    await send({**message, "body": message.get("body", b"")[:20], "more_body": True})
                elif not known or sent == 1:
                    await send(message)

            await app(scope, replayed(body, receive), cut)

        return dropping


DEFECTS: tuple[type[Defect], ...] = (
    EmptyOnRepeat,
    ErrorOnRepeat,
    OldAnswer,
    FrontTruncation,
    LimitIgnored,
    OptionsSwallowed,
    BrokenStream,
    DropsRepeats,
)
