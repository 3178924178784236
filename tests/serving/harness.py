"""Runs requests through a real scheduler and keeps what came back, for the scheduler's tests."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from headstart.engines.base import Engine, Logits, Step
from headstart.engines.toy import ToyEngine
from headstart.prefix.tokens import TokenRun, token_run
from headstart.serving.request import Delta, Event, Failed, Finished, GenerationRequest, PrefillDone, Sampling
from headstart.serving.scheduler import Scheduler, Ticket
from headstart.serving.settings import SchedulerSettings

GREEDY = Sampling(temperature=0.0)
SETTINGS = SchedulerSettings(ram_cache_bytes=64 << 20, block_tokens=16, prefill_chunk_tokens=32)


@dataclass
class Reply:
    """Everything one request was sent."""

    events: list[Event] = field(default_factory=list)
    done: threading.Event = field(default_factory=threading.Event)
    first: threading.Event = field(default_factory=threading.Event)

    def sink(self, event: Event) -> None:
        self.events.append(event)
        if isinstance(event, Delta):
            self.first.set()
        if isinstance(event, Finished | Failed):
            self.done.set()
            self.first.set()

    def wait(self, timeout_s: float = 30.0) -> Finished:
        assert self.done.wait(timeout_s), f"no end after {timeout_s} s: {self.events}"
        last = self.events[-1]
        assert isinstance(last, Finished), last
        return last

    @property
    def tokens(self) -> list[int]:
        return [event.token for event in self.events if isinstance(event, Delta)]

    def check_order(self) -> None:
        """PrefillDone, then Deltas, then exactly one end."""
        assert isinstance(self.events[0], PrefillDone)
        assert all(isinstance(event, Delta) for event in self.events[1:-1])
        assert isinstance(self.events[-1], Finished)


class CountingToy(ToyEngine):
    """A toy engine that remembers the size of every step of every forward."""

    def __init__(self, *args: object, **kwargs: object) -> None:
        super().__init__(*args, **kwargs)  # type: ignore[arg-type]
        self.forwards: list[list[int]] = []

    def forward(self, steps: Sequence[Step]) -> list[Logits | None]:
        logits = super().forward(steps)
        self.forwards.append([len(step.tokens) for step in steps])
        return logits


class Server:
    """A scheduler with its engine, as a context manager."""

    def __init__(self, engine: Engine, settings: SchedulerSettings = SETTINGS, **changes: object) -> None:
        self.engine = engine
        self.scheduler = Scheduler(engine, replace(settings, **changes))  # type: ignore[arg-type]

    def __enter__(self) -> Server:
        self.scheduler.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.scheduler.stop()

    def send(
        self, prompt: Sequence[int] | TokenRun, max_tokens: int = 4, **fields: object
    ) -> tuple[Reply, Ticket]:
        reply = Reply()
        values: dict[str, object] = {
            "sampling": GREEDY,
            "ignore_end": True,
            "max_tokens": max_tokens,
        } | fields
        request = GenerationRequest(token_run(prompt), **values)  # type: ignore[arg-type]
        return reply, self.scheduler.submit(request, reply.sink)

    def ask(
        self, prompt: Sequence[int] | TokenRun, max_tokens: int = 4, **fields: object
    ) -> tuple[Reply, Finished]:
        reply, _ = self.send(prompt, max_tokens, **fields)
        return reply, reply.wait()


def prompt_of(length: int, seed: int = 0) -> TokenRun:
    """`length` printable byte tokens."""
    return np.random.default_rng(seed).integers(32, 127, length).astype(np.int32)


def cold_reply(engine: ToyEngine, prompt: TokenRun, count: int) -> list[int]:
    """What greedy decoding gives without any cache: one plain loop over the engine."""
    seq = engine.open()
    tokens, reply = prompt, []
    for _ in range(count):
        logits = None
        for start in range(0, len(tokens), engine.max_step_tokens):
            (logits,) = engine.forward(
                [Step(seq, tokens[start : start + engine.max_step_tokens], wants_logits=True)]
            )
        assert logits is not None
        reply.append(int(logits.argmax()))
        tokens = token_run([reply[-1]])
    engine.close(seq)
    return reply
