"""Prompts read through a PrefixCache, one after another: the least that a server does around it.

`CachedReader.ask` plans, loads, restores or cuts, reads what is left in random chunks while it
records rows and checkpoints, and answers with the logits and the counts. `Oracle` says by brute
force over the prompts so far what a perfect cache restores.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from headstart.engines.base import Engine, Logits, SeqId, Step
from headstart.prefix.block import Checkpoint
from headstart.prefix.cache import PrefixCache, Restored
from headstart.prefix.plan import LiveView, Plan, PromptHints
from headstart.prefix.record import Recorder
from headstart.prefix.report import Tier
from headstart.prefix.tokens import TokenRun, common_prefix
from tests.engines.equality import draw_chunks

Tamper = Callable[[Restored], Restored]
NO_HINTS = PromptHints()


@dataclass(frozen=True)
class Answer:
    """`restored` tokens were not read, `read` were; `stops` are where checkpoints were taken."""

    plan: Plan
    logits: Logits
    restored: int
    read: int
    stops: tuple[int, ...]


@dataclass
class CachedReader:
    """Reads prompts on one engine. `keep_live`: how many finished sequences stay in the engine.

    `smallest`: fewest tokens a chunk may have where there is a choice. `tamper` changes what was
    loaded before the engine gets it, as a broken cache would.
    """

    engine: Engine
    cache: PrefixCache
    namespace: bytes
    random: np.random.Generator
    keep_live: int = 2
    smallest: int = 1
    largest: int = 64
    tamper: Tamper | None = None
    live: list[tuple[SeqId, TokenRun]] = field(default_factory=list)

    def ask(self, prompt: TokenRun, hints: PromptHints = NO_HINTS) -> Answer:
        """Reads `prompt` as far as the cache does not have it."""
        views = [
            LiveView(seq, self.namespace, tokens, self.engine.window_start(seq), busy=False)
            for seq, tokens in self.live
        ]
        plan = self.cache.plan(self.namespace, prompt, views, hints)
        assert plan.fork_from is None, "everything live has been recorded"
        seq, restored, logits = self._start(plan)
        recorder = self.cache.recorder(self.namespace, prompt[:restored])
        stops = [stop for stop in plan.stops if stop.position > restored]
        read = 0
        for size in self._chunks(restored, [stop.position for stop in stops], len(prompt)):
            at = self.engine.position(seq)
            (logits,) = self.engine.forward([Step(seq, prompt[at : at + size], at + size == len(prompt))])
            read += size
            self._record(recorder, seq, prompt)
            while stops and stops[0].position == at + size:
                checkpoint = Checkpoint(at + size, self.engine.checkpoint(seq))
                recorder.put_checkpoint(checkpoint, stops.pop(0).kind)
        assert logits is not None
        recorder.put_logits(logits, at=len(prompt))
        recorder.close()
        self._retire(seq, prompt)
        return Answer(plan, logits, restored, read, tuple(stop.position for stop in plan.stops))

    def _start(self, plan: Plan) -> tuple[SeqId, int, Logits | None]:
        if plan.tier is Tier.NONE:
            return self._room(self.engine.open), 0, None
        loaded = self.cache.load(plan)
        assert isinstance(loaded, Restored), loaded
        loaded = self.tamper(loaded) if self.tamper is not None else loaded
        if loaded.tier is Tier.LIVE:
            index = next(i for i, (seq, _) in enumerate(self.live) if seq == plan.live)
            seq, tokens = self.live.pop(index)
            if loaded.position < len(tokens):
                self.engine.cut(seq, loaded.position, loaded.window_rows, loaded.checkpoint)
        else:
            seq = self._room(lambda: self.engine.restore(loaded.rows, loaded.checkpoint, loaded.position))
        return seq, loaded.position, loaded.logits

    def _room(self, make: Callable[[], SeqId]) -> SeqId:
        while len(self.live) >= self.engine.max_sequences - 1:
            self.engine.close(self.live.pop(0)[0])
        return make()

    def _chunks(self, start: int, stops: list[int], end: int) -> list[int]:
        sizes: list[int] = []
        for stop in sorted({*stops, end}):
            if stop > start:
                sizes += draw_chunks(self.random, stop - start, self.smallest, self.largest)
                start = stop
        return sizes

    def _record(self, recorder: Recorder, seq: SeqId, prompt: TokenRun) -> None:
        start, stop = recorder.position, self.engine.position(seq)
        if recorder.active and stop > start:
            recorder.record(prompt[start:stop], self.engine.rows(seq, start, stop), canonical=True)

    def _retire(self, seq: SeqId, prompt: TokenRun) -> None:
        self.live.append((seq, prompt))
        while len(self.live) > self.keep_live:
            self.engine.close(self.live.pop(0)[0])

    def close(self) -> None:
        """Closes what is still live."""
        while self.live:
            self.engine.close(self.live.pop()[0])


@dataclass
class Oracle:
    """What a perfect cache of unlimited size knows after the prompts so far."""

    recurrent: bool
    prompts: list[TokenRun] = field(default_factory=list)
    checkpoints: set[bytes] = field(default_factory=set)

    def divergence(self, prompt: TokenRun) -> int:
        """Longest prefix shared with any prompt so far."""
        return max((common_prefix(prompt, other) for other in self.prompts), default=0)

    def restorable(self, prompt: TokenRun) -> int:
        """Most tokens that need not be read, exactly repeated prompts whole."""
        if any(np.array_equal(prompt, other) for other in self.prompts):
            return len(prompt)
        limit = min(self.divergence(prompt), len(prompt) - 1)
        if not self.recurrent:
            return limit
        return max((at for at in range(1, limit + 1) if prompt[:at].tobytes() in self.checkpoints), default=0)

    def learn(self, prompt: TokenRun, stops: tuple[int, ...]) -> None:
        """`prompt` has been read, with checkpoints at `stops`."""
        self.prompts.append(prompt)
        self.checkpoints |= {prompt[:at].tobytes() for at in stops}


def next_prompt(
    random: np.random.Generator, earlier: list[TokenRun], fresh: Callable[[int], TokenRun], longest: int
) -> TokenRun:
    """A branch of an earlier prompt at a random index, now and then a repeat, a prefix or a new one."""
    kind = random.random()
    if not earlier or kind < 0.1:
        return fresh(int(random.integers(2, longest)))
    base = earlier[int(random.integers(len(earlier)))]
    if kind < 0.2:
        return base
    index = int(random.integers(1, len(base) + 1))
    if kind < 0.3:
        return base[:index]
    tail = fresh(int(random.integers(1, max(2, longest - index))))
    return np.concatenate([base[:index], tail])
