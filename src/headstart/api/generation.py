"""From the engine thread to the event loop: the replies of one HTTP request as they come.

The scheduler calls its sinks on the engine thread. Events are put on a deque there and the event
loop is woken once for as many as have come since it last looked, so a token costs the engine
thread an append and, at most, one wake-up.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

from fastapi import Request

from headstart.errors import EngineError
from headstart.prefix.report import CacheReport
from headstart.serving.models import ServedModel
from headstart.serving.request import (
    Delta,
    Event,
    Failed,
    Finished,
    FinishReason,
    GenerationRequest,
    PrefillDone,
)


class ClientGoneError(Exception):
    """The client closed its connection; nobody is left to answer."""


@dataclass
class Reply:
    """One reply so far. `text` and `deltas` are what has come since the last `take`, `tokens` all of it."""

    index: int
    text: str = ""
    deltas: list[Delta] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)
    report: CacheReport | None = None
    end: Finished | None = None

    def take(self) -> tuple[str, list[Delta]]:
        """What is new, and is then no longer new."""
        text, deltas = self.text, self.deltas
        self.text, self.deltas = "", []
        return text, deltas


class Inbox:
    """Events of several replies on their way to one event loop."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._news = asyncio.Event()
        self._events: deque[tuple[int, Event]] = deque()
        self._waking = False
        self._woken = False

    def sink(self, index: int) -> Callable[[Event], None]:
        """A sink for the engine thread; never blocks and never raises."""

        def put(event: Event) -> None:
            self._events.append((index, event))
            if not self._waking:
                self._waking = True
                try:
                    self._loop.call_soon_threadsafe(self._news.set)
                except RuntimeError:
                    self._events.clear()  # the loop is closed: the server has stopped, nobody reads

        return put

    def wake(self) -> None:
        """From the event loop: lets `take` return at once, now and from now on."""
        self._woken = True
        self._news.set()

    async def take(self, timeout_s: float) -> list[tuple[int, Event]]:
        """All events that have come; empty after `timeout_s` or `wake`."""
        while not self._events and not self._woken:
            try:
                async with asyncio.timeout(timeout_s):
                    await self._news.wait()
            except TimeoutError:
                return []
            self._news.clear()
            self._waking = False
        return [self._events.popleft() for _ in range(len(self._events))]


class Generation:
    """The replies to one HTTP request. An async context: leaving it cancels what still runs."""

    def __init__(self, model: ServedModel, http: Request, arrived_s: float) -> None:
        self.replies: list[Reply] = []
        self.first_text_s: float | None = None
        self.arrived_s = arrived_s
        self._scheduler = model.scheduler
        self._http = http
        self._inbox = Inbox()
        self._tickets: list[Any] = []
        self._watch: asyncio.Task[None] | None = None
        self._gone = False

    def submit(self, requests: Sequence[GenerationRequest]) -> None:
        """Queues every request; where one is refused, cancels the others and raises its error."""
        try:
            for index, request in enumerate(requests):
                self._tickets.append(self._scheduler.submit(request, self._inbox.sink(index)))
                self.replies.append(Reply(index))
        except BaseException:
            self.close()
            raise
        self._watch = asyncio.create_task(self._watch_client())

    async def __aenter__(self) -> Generation:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Cancels replies that are not finished. Idempotent."""
        for ticket, reply in zip(self._tickets, self.replies, strict=False):
            if reply.end is None:
                self._scheduler.cancel(ticket)
        self._tickets = []
        if self._watch is not None:
            self._watch.cancel()
            self._watch = None

    @property
    def finished(self) -> bool:
        return all(reply.end is not None for reply in self.replies)

    async def news(self, timeout_s: float) -> list[Reply]:
        """Replies that something was added to; empty where `timeout_s` passed without any.

        Raises the error a reply failed with, and ClientGoneError.
        """
        events = await self._inbox.take(timeout_s)
        if self._gone:
            raise ClientGoneError
        changed: dict[int, Reply] = {}
        for index, event in events:
            reply = self.replies[index]
            self._apply(reply, event)
            changed[index] = reply
        return list(changed.values())

    async def run(self) -> list[Finished]:
        """Waits for every reply; their ends in order. What they said stays in `replies`."""
        while not self.finished:
            await self.news(3600.0)
        return self.ends()

    def ends(self) -> list[Finished]:
        return [reply.end for reply in self.replies if reply.end is not None]

    def first_token_s(self) -> float:
        """Seconds from the request's last byte to its first text; to its end where it has none."""
        return (self.first_text_s or time.perf_counter()) - self.arrived_s

    def total_s(self) -> float:
        return time.perf_counter() - self.arrived_s

    def _apply(self, reply: Reply, event: Event) -> None:
        match event:
            case Delta():
                reply.text += event.text
                reply.deltas.append(event)
                reply.tokens.append(event.token)
            case PrefillDone():
                reply.report = event.report
            case Finished():
                if event.reason is FinishReason.CANCELLED:
                    raise EngineError("the server stopped this reply before it was complete")
                reply.text += event.tail
                reply.report = event.report
                reply.end = event
            case Failed():
                raise event.error
        if reply.text and self.first_text_s is None:
            self.first_text_s = time.perf_counter()

    async def _watch_client(self) -> None:
        """Ends when the connection does. The body was read before, so nothing else can arrive."""
        while not self._gone:
            message = await self._http.receive()
            self._gone = message["type"] == "http.disconnect"
        self._inbox.wake()
