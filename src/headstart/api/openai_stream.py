"""A reply in OpenAI's stream form, and the same reply whole.

No chunk goes out before the first text of a reply is there, so a client that measures time to
first token measures just that; while nothing is there, comments keep the connection alive.
"""

from __future__ import annotations

import logging
import time
from collections.abc import AsyncGenerator, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from headstart.api.generation import ClientGoneError, Generation, Reply
from headstart.api.openai_errors import body_of
from headstart.api.openai_replies import Form, LogprobWriter, chunk_choice, delta_of, reason_of, whole_choice
from headstart.api.request_log import RequestLog
from headstart.api.sse import DONE, KEEP_ALIVE, data_event
from headstart.api.usage import llama_timings, openai_usage
from headstart.api.work import Entry, Work, closed
from headstart.chat.replies.events import CallEnd, Event
from headstart.errors import HeadstartError
from headstart.serving.models import ServedModel
from headstart.serving.request import Delta, Finished

log = logging.getLogger(__name__)

KEEP_ALIVE_S = 10.0


@dataclass(frozen=True)
class Exchange:
    """One request to a completion endpoint and what its reply needs to know of it."""

    model: ServedModel
    form: Form
    work: Work
    request_id: str
    tenant: str
    log: RequestLog
    created: int = field(default_factory=lambda: int(time.time()))

    @property
    def entry(self) -> Entry:
        return Entry(self.log, self.request_id, self.tenant)

    def head(self, kind: str) -> dict[str, Any]:
        return {
            "id": self.request_id,
            "object": kind,
            "created": self.created,
            "model": self.model.name,
            "system_fingerprint": self.model.fingerprint,
        }


async def whole_reply(exchange: Exchange, generation: Generation) -> dict[str, Any]:
    """Waits for every reply of `generation` and gives the completion object."""
    ends = await generation.run()
    choices, troubles = [], []
    for reply, end in zip(generation.replies, ends, strict=True):
        text, deltas = reply.take()
        splitter = exchange.work.format.splitter(hold=True)
        events = [*splitter.feed(text), *splitter.end()]
        troubles += splitter.warnings
        logprobs = LogprobWriter(exchange.model, exchange.form).write(deltas)
        choices.append(whole_choice(exchange.form, reply.index, events, logprobs, end))
    body = {**exchange.head(exchange.form.whole), "choices": choices}
    return {**body, **await _close(exchange, generation, troubles)}


async def stream_reply(
    exchange: Exchange, generation: Generation, ready: Sequence[Reply]
) -> AsyncGenerator[bytes, None]:
    """The events of the stream. `ready`: replies with news that were taken before headers went out."""
    async with generation:
        writer = _ChunkWriter(exchange, generation)
        try:
            for chunk in writer.chunks(ready):
                yield chunk
            while not generation.finished:
                news = await generation.news(KEEP_ALIVE_S)
                if not news:
                    yield KEEP_ALIVE
                for chunk in writer.chunks(news):
                    yield chunk
            for chunk in writer.last(await _close(exchange, generation, writer.warnings)):
                yield chunk
        except ClientGoneError:
            return
        except HeadstartError as error:
            log.warning("request %s failed after its stream had begun: %s", exchange.request_id, error)
            yield data_event(body_of(error)[1])
        yield DONE


class _Told:
    """One reply on its way into chunks. `deltas`: tokens whose log-probabilities were not sent yet."""

    def __init__(self, exchange: Exchange) -> None:
        self.splitter = exchange.work.format.splitter(hold=False)
        self.logprobs = LogprobWriter(exchange.model, exchange.form)
        self.deltas: list[Delta] = []
        self.begun = False
        self.called = False


class _ChunkWriter:
    """Turns what is new in the replies into chunks. The reply that ends last waits for `last`."""

    def __init__(self, exchange: Exchange, generation: Generation) -> None:
        self._exchange = exchange
        self._head = exchange.head(exchange.form.chunk)
        if exchange.work.include_usage:
            self._head["usage"] = None
        self._told = [_Told(exchange) for _ in generation.replies]
        self._ending: Reply | None = None

    @property
    def warnings(self) -> list[str]:
        return [warning for told in self._told for warning in told.splitter.warnings]

    def chunks(self, news: Sequence[Reply]) -> Iterator[bytes]:
        for reply in news:
            told = self._told[reply.index]
            text, deltas = reply.take()
            told.deltas += deltas
            yield from self._said(reply, told.splitter.feed(text))
            if reply.end is not None:
                yield from self._said(reply, told.splitter.end())
                if self._ending is not None:
                    yield self._chunk(self._ending, {}, end=self._ending.end)
                self._ending = reply

    def last(self, closing: dict[str, Any]) -> Iterator[bytes]:
        """The final chunk with its reason, then usage where it was asked for."""
        usage = closing.pop("usage")
        if self._ending is not None:
            yield self._chunk(self._ending, {}, end=self._ending.end, extra=closing)
        if self._exchange.work.include_usage:
            final = {**self._head, "choices": [], "usage": usage, "timings": closing["timings"]}
            yield data_event(final)

    def _said(self, reply: Reply, events: Sequence[Event]) -> Iterator[bytes]:
        for event in events:
            self._told[reply.index].called |= isinstance(event, CallEnd)
            delta = delta_of(event)
            if delta is not None:
                yield self._chunk(reply, delta)

    def _chunk(
        self,
        reply: Reply,
        delta: dict[str, Any],
        *,
        end: Finished | None = None,
        extra: dict[str, Any] | None = None,
    ) -> bytes:
        told = self._told[reply.index]
        first, told.begun = not told.begun, True
        deltas, told.deltas = told.deltas, []
        choice = chunk_choice(
            self._exchange.form,
            reply.index,
            delta,
            first=first,
            logprobs=told.logprobs.write(deltas),
            reason=None if end is None else reason_of(end, called=told.called),
        )
        return data_event({**self._head, "choices": [choice], **(extra or {})})


async def _close(exchange: Exchange, generation: Generation, troubles: Sequence[str]) -> dict[str, Any]:
    """usage, timings and what headstart adds; the same for both forms. `troubles`: see `closed`."""
    done = await closed(exchange.model, exchange.work, generation, exchange.entry, troubles)
    closing: dict[str, Any] = {"usage": openai_usage(done.cost), "timings": llama_timings(done.cost)}
    return {**closing, "headstart": done.added} if done.added else closing
