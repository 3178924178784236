"""One request on its way through the engine: its tokens, its place in them, and what it has sent."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from headstart.chat.stream import TextStream
from headstart.engines.base import Logits, SeqId, Vocabulary
from headstart.prefix.fetch import Fetch
from headstart.prefix.plan import Stop
from headstart.prefix.record import Recorder
from headstart.prefix.report import CacheReport
from headstart.prefix.tokens import TokenRun
from headstart.serving.chunking import Prefill
from headstart.serving.constraint import Constraint
from headstart.serving.request import (
    Delta,
    Event,
    Failed,
    Finished,
    FinishReason,
    GenerationRequest,
    PrefillDone,
    Timings,
)
from headstart.serving.sampling import Sampler, logprobs

Sink = Callable[[Event], None]


class Clock:
    """When a request passed each stage, in seconds of `time.perf_counter`; 0 where it has not yet."""

    def __init__(self) -> None:
        self.arrived_s = time.perf_counter()
        self.started_s = 0.0
        self.first_token_s = 0.0
        self.last_token_s = 0.0

    def timings(self) -> Timings:
        start = self.started_s or self.last_token_s or self.arrived_s
        first = self.first_token_s or start
        return Timings(
            queued_s=start - self.arrived_s,
            prefill_s=first - start,
            decode_s=max(0.0, self.last_token_s - first),
            first_token_s=first - self.arrived_s,
        )


class Running:
    """A request from submission to its last event.

    Invariant: `tokens` is the prompt and every token sampled so far; the engine has read the
    first `position` of them. While that is all but the last one, the sequence is decoding.
    """

    def __init__(
        self,
        request: GenerationRequest,
        sink: Sink,
        *,
        namespace: bytes,
        vocabulary: Vocabulary,
        context_tokens: int,
        vocab_size: int,
        constraint: Constraint | None,
    ) -> None:
        prompt_tokens = len(request.prompt)
        room = context_tokens - prompt_tokens
        self.request = request
        self.namespace = namespace
        self.clock = Clock()
        self.seq: SeqId | None = None
        self.position = 0
        self.recorder: Recorder | None = None
        self.report: CacheReport | None = None
        self.stops: deque[Stop] = deque()
        self.end_logits: Logits | None = None
        self.max_new_tokens = room if request.max_tokens is None else min(request.max_tokens, room)
        self.generated = 0
        self.drafted = self.accepted = 0
        self.cancelled = False
        self.stepped_aside_at = -1
        self.fetch: Fetch | None = None
        self.looked_on_ssd = False
        self._awaited: tuple[Running, int] | None = None
        self.finished = False
        self._sink = sink
        self._vocabulary = vocabulary
        self._buffer = np.empty(prompt_tokens + self.max_new_tokens, dtype=np.int32)
        self._buffer[:prompt_tokens] = request.prompt
        self._length = prompt_tokens
        self._stream = TextStream(vocabulary, request.stop, request.shown)
        self._sampler = Sampler(request.sampling, vocab_size, request.prompt)
        self._constraint = constraint

    @property
    def fetching(self) -> bool:
        """Whether state of this prompt is on its way from the SSD."""
        return self.fetch is not None and not self.fetch.done

    def end_fetch(self) -> Fetch | None:
        """Lets go of what was fetched from the SSD, if anything was; answers the fetch."""
        fetch, self.fetch = self.fetch, None
        if fetch is not None:
            fetch.close()
        return fetch

    def wait_for(self, other: Running, position: int) -> None:
        """This request starts once `other` has read up to `position`, which both prompts share."""
        self._awaited = other, position

    def is_waiting(self) -> bool:
        """Whether the sequence it waits for is still on its way to the shared position."""
        if self._awaited is None:
            return False
        other, position = self._awaited
        if other.finished or other.seq is None or other.position >= position:
            self._awaited = None
        return self._awaited is not None

    @property
    def prompt_tokens(self) -> int:
        return len(self.request.prompt)

    @property
    def tokens(self) -> TokenRun:
        """Prompt and sampled tokens, a view."""
        return self._buffer[: self._length]

    @property
    def unread(self) -> int:
        """Tokens the engine has yet to read before the next one can be sampled."""
        return self._length - self.position

    @property
    def decoding(self) -> bool:
        return self.generated > 0 and self.unread == 1

    def prefill(self) -> Prefill:
        return Prefill(self.position, self._length, tuple(stop.position for stop in self.stops))

    def advance(self, position: int) -> Stop | None:
        """The engine has read up to `position`; the stop that stands there, if one does."""
        self.position = position
        reached = None
        while self.stops and self.stops[0].position <= position:
            stop = self.stops.popleft()
            reached = stop if stop.position == position else reached
        return reached

    def add_stop(self, stop: Stop) -> None:
        """Puts `stop` in its place among the stops yet to be reached, unless one stands there."""
        if stop.position > self.position and all(other.position != stop.position for other in self.stops):
            self.stops = deque(sorted([*self.stops, stop], key=lambda other: other.position))

    def announce(self, report: CacheReport) -> None:
        """Tells the client that its prompt is read. Once, even if the sequence is moved later."""
        if self.report is None:
            self.report = report

    @property
    def greedy(self) -> bool:
        """Whether the token with the highest score comes next and will be read, unless it ends the reply."""
        reads_it = self.generated + 1 < self.max_new_tokens
        return reads_it and self._constraint is None and self._sampler.takes_highest

    def sample(self, logits: Logits) -> None:
        """Chooses the next token and sends what it adds; may finish the request."""
        if self.generated == 0:
            assert self.report is not None
            self._sink(PrefillDone(self.report))
            if self.max_new_tokens <= 0:
                self.finish(FinishReason.LENGTH)
                return
        allowed = self._constraint.mask() if self._constraint else None
        token = self._sampler.choose(logits, allowed)
        self.clock.last_token_s = time.perf_counter()
        if self.generated == 0:
            self.clock.first_token_s = self.clock.last_token_s
        self.generated += 1
        self._buffer[self._length] = token
        self._length += 1
        self._sampler.accept(token)
        self._emit(token, logits)

    def _emit(self, token: int, logits: Logits) -> None:
        ends = token in self._vocabulary.end_of_generation and not self.request.ignore_end
        if ends:
            self.finish(FinishReason.STOP)
            return
        if self._constraint:
            self._constraint.accept(token)
        text = self._stream.push(token)
        if self.request.top_logprobs is None:
            self._sink(Delta(token, text))
        else:
            self._sink(Delta(token, text, *logprobs(logits, token, self.request.top_logprobs)))
        if self._stream.stopped is not None or (self._constraint and self._constraint.done):
            self.finish(FinishReason.STOP)
        elif self.generated >= self.max_new_tokens:
            self.finish(FinishReason.LENGTH)

    def finish(self, reason: FinishReason) -> None:
        """Sends the last event of a served request."""
        assert self.report is not None
        self.finished = True
        tail = "" if self._stream.stopped is not None else self._stream.finish()
        self._sink(
            Finished(
                reason,
                tail,
                self.generated,
                self.report,
                self.clock.timings(),
                self._stream.stopped,
                self.drafted,
                self.accepted,
            )
        )

    def fail(self, event: Failed) -> None:
        """Sends the last event of a request that gets no reply."""
        if not self.finished:
            self.finished = True
            self._sink(event)


@dataclass(frozen=True)
class Ticket:
    """A submitted request, to cancel it by."""

    run: Running
