"""Does a resumed sequence continue like a cold one? An engine-neutral checker.

A *recording* is one sequence that was read in some chunks, with all its rows and some checkpoints
copied out. A *case* resumes the first `position` tokens of a recording, from its copied rows
(`RESTORE`), from the live sequence cut back (`CUT`) or from a fork of it (`FORK`), reads a new tail,
and compares the next-token logits with those of a cold sequence that reads the same tokens. The
comparison is of bits; `floor` measures how far two cold runs of one prompt in other chunks lie
apart, which is the yardstick where an engine's arithmetic depends on the chunks.

`corrupt` spoils what a restore is given, in the ways a cache could get it wrong. Each of these must
come out as a difference: the checker's own negative controls.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import pairwise

import numpy as np

from headstart.engines.base import Engine, Logits, SeqId, Step
from headstart.errors import EngineError
from headstart.prefix.block import RowBytes
from headstart.prefix.tokens import TokenRun, token_run

Chunks = tuple[int, ...]
"""Sizes of consecutive steps."""


class Source(StrEnum):
    """Where the state of the shared prefix comes from."""

    RESTORE = "restore"
    CUT = "cut"
    FORK = "fork"


class Fault(StrEnum):
    """A way to hand the engine the wrong state."""

    ONE_TOKEN_SHORT = "one token short"  # restored one token before the place the tail goes on from
    ONE_ROW_TOO_MANY = "one row too many"  # the other prompt's row at the divergence taken over
    SHIFTED = "rows shifted by one"
    OTHER_TOKEN = "one row of another token"
    OTHER_LAYER = "rows of another layer"
    OTHER_NAMESPACE = "rows of other weights"
    WRONG_CHECKPOINT = "the checkpoint of another position"
    OTHER_CHECKPOINT = "the checkpoint of other tokens"
    FRESH_CHECKPOINT = "a checkpoint of one token read"
    LOST_WINDOW_ROW = "the oldest row of the window lost"


@dataclass(frozen=True)
class Recording:
    """What one sequence left behind. `rows` are of all `tokens`; `checkpoints` by position."""

    tokens: TokenRun
    chunks: Chunks
    rows: RowBytes
    checkpoints: Mapping[int, bytes]


@dataclass(frozen=True)
class State:
    """What a restore is given."""

    rows: RowBytes
    checkpoint: bytes | None
    position: int
    tail: TokenRun


@dataclass(frozen=True)
class Comparison:
    """Logits of a resumed sequence against a cold one's. `refused`: the engine's words, if it refused."""

    same_bits: bool
    difference: float
    refused: str | None = None

    def differs(self, limit: float) -> bool:
        """Whether the resumed sequence lies further from the cold one than `limit`, or was refused."""
        return self.refused is not None or not self.difference <= limit


def random_tokens(random: np.random.Generator, engine: Engine, count: int) -> TokenRun:
    """Ordinary tokens: none of the control tokens."""
    ordinary = [t for t in range(engine.layout.vocab_size) if t not in engine.vocabulary.control]
    return token_run(random.choice(np.array(ordinary), count))


def draw_chunks(random: np.random.Generator, total: int, smallest: int, largest: int) -> Chunks:
    """Sizes that add up to `total`, none above `largest`, none below `smallest` where that can be.

    Raises ValueError where `largest` leaves no room for two smallest chunks to differ.
    """
    if largest < smallest:
        raise ValueError(f"no chunk has {smallest}..{largest} tokens")
    sizes: list[int] = []
    left = total
    while left:
        size = min(left, int(random.integers(smallest, largest + 1)))
        if 0 < left - size < smallest:  # the rest would be too short: leave enough for it, or take it all
            size = left if left <= largest else max(smallest, min(size, left - smallest))
        sizes.append(size)
        left -= size
    return tuple(sizes)


def read(engine: Engine, seq: SeqId, tokens: TokenRun, chunks: Chunks) -> Logits:
    """Reads all of `tokens`, which `chunks` add up to; logits after the last."""
    assert sum(chunks) == len(tokens), f"chunks of {sum(chunks)} tokens for {len(tokens)}"
    logits = None
    start = 0
    for size in chunks:
        last = start + size == len(tokens)
        logits = engine.forward([Step(seq, tokens[start : start + size], wants_logits=last)])[0]
        start += size
    assert logits is not None
    return logits


def record(
    engine: Engine, seq: SeqId, tokens: TokenRun, chunks: Chunks, stops: Sequence[int] = ()
) -> Recording:
    """Reads `tokens` into the empty `seq`, copying out rows after every step and, where the layout is
    recurrent, a checkpoint at every stop that is the end of a chunk and at the end."""
    parts: list[RowBytes] = []
    checkpoints: dict[int, bytes] = {}
    start = 0
    for size in chunks:
        engine.forward([Step(seq, tokens[start : start + size], wants_logits=False)])
        parts.append(engine.rows(seq, start, start + size).owned())
        start += size
        if engine.layout.recurrent and (start in stops or start == len(tokens)):
            checkpoints[start] = engine.checkpoint(seq)
    return Recording(tokens, chunks, RowBytes.join(parts), checkpoints)


def cold_logits(engine: Engine, tokens: TokenRun, chunks: Chunks) -> Logits:
    """Logits after `tokens`, read into a sequence of their own."""
    seq = engine.open()
    try:
        return read(engine, seq, tokens, chunks)
    finally:
        engine.close(seq)


def floor(engine: Engine, tokens: TokenRun, chunkings: Sequence[Chunks]) -> float:
    """Largest difference of any logit between cold runs of `tokens` in these chunks."""
    runs = [cold_logits(engine, tokens, chunks) for chunks in chunkings]
    return max(compare(run, runs[0]).difference for run in runs)


def compare(resumed: Logits, cold: Logits) -> Comparison:
    """NaN anywhere counts as an endless difference."""
    difference = np.abs(resumed.astype(np.float64) - cold)
    worst = float(difference.max()) if np.isfinite(difference).all() else float("inf")
    return Comparison(resumed.tobytes() == cold.tobytes(), worst)


def state_at(recording: Recording, position: int, tail: TokenRun) -> State:
    """What a right cache would restore: the recording's first `position` tokens, then `tail`."""
    return State(recording.rows.cut(0, position), recording.checkpoints.get(position), position, tail)


def resume(engine: Engine, state: State, chunks: Chunks, random: np.random.Generator | None = None) -> Logits:
    """Restores `state`, its rows in parts cut at random places, and reads its tail."""
    cuts = [0, state.position]
    if random is not None and state.position > 1:
        cuts = sorted({*cuts, *(int(cut) for cut in random.integers(1, state.position, 3))})
    parts = [state.rows.cut(a, b) for a, b in pairwise(cuts)]
    seq = engine.restore(parts, state.checkpoint, state.position)
    try:
        return read(engine, seq, state.tail, chunks)
    finally:
        engine.close(seq)


def resume_live(engine: Engine, seq: SeqId, state: State, chunks: Chunks, source: Source) -> Logits:
    """Cuts the live `seq`, whose rows `state` holds, back to the state's position, or forks it there,
    and reads the tail. Window rows and checkpoint are given only where the port asks for them."""
    first = max(0, state.position - engine.layout.window_tokens)
    missing = engine.layout.window_tokens > 0 and engine.window_start(seq) > first
    window_rows = state.rows.cut(first, state.position) if missing else None
    checkpoint = state.checkpoint if state.position != engine.position(seq) else None
    if source is Source.CUT:
        engine.cut(seq, state.position, window_rows, checkpoint)
        return read(engine, seq, state.tail, chunks)
    fork = engine.fork(seq, state.position, window_rows, checkpoint)
    try:
        return read(engine, fork, state.tail, chunks)
    finally:
        engine.close(fork)


def compare_corrupted(engine: Engine, state: State, chunks: Chunks, cold: Logits) -> Comparison:
    """Resumes from a spoiled state; a refusal by the engine counts as noticed."""
    try:
        return compare(resume(engine, state, chunks), cold)
    except EngineError as error:
        return Comparison(False, float("inf"), refused=str(error))


def corrupt(engine: Engine, fault: Fault, good: State, old: Recording, foreign: Recording) -> State | None:
    """`good` spoiled by `fault`; None where this layout has nothing that could go wrong this way.

    `old` is the recording that `good` comes from, with checkpoints at position - 1 and + 1 where the
    layout is recurrent; `foreign` one of the same tokens by a model of the same shape, other weights.
    """
    at = good.position
    match fault:
        case Fault.ONE_TOKEN_SHORT:
            return State(good.rows.cut(0, at - 1), old.checkpoints.get(at - 1), at - 1, good.tail)
        case Fault.ONE_ROW_TOO_MANY:
            return State(old.rows.cut(0, at + 1), old.checkpoints.get(at + 1), at + 1, good.tail[1:])
        case Fault.OTHER_NAMESPACE:
            return State(foreign.rows.cut(0, at), foreign.checkpoints.get(at), at, good.tail)
        case Fault.WRONG_CHECKPOINT | Fault.OTHER_CHECKPOINT | Fault.FRESH_CHECKPOINT:
            return _corrupt_checkpoint(engine, fault, good, old) if engine.layout.recurrent else None
        case _:
            return _corrupt_rows(engine, fault, good, old) if engine.layout.planes else None


def _corrupt_checkpoint(engine: Engine, fault: Fault, good: State, old: Recording) -> State:
    if fault is Fault.WRONG_CHECKPOINT:
        return replace(good, checkpoint=old.checkpoints[good.position - 1])
    tokens = good.tail[:1] if fault is Fault.FRESH_CHECKPOINT else old.tokens[: good.position][::-1].copy()
    seq = engine.open()
    for start in range(0, len(tokens), engine.max_step_tokens):
        engine.forward([Step(seq, tokens[start : start + engine.max_step_tokens], wants_logits=False)])
    checkpoint = engine.checkpoint(seq)
    engine.close(seq)
    return replace(good, checkpoint=checkpoint)


def _corrupt_rows(engine: Engine, fault: Fault, good: State, old: Recording) -> State | None:
    at, rows, layout = good.position, good.rows, engine.layout
    if fault is Fault.SHIFTED:
        return replace(good, rows=RowBytes.join([rows.cut(0, 1), rows.cut(0, at - 1)]))
    if fault is Fault.OTHER_TOKEN:
        return replace(good, rows=RowBytes.join([rows.cut(0, at - 1), old.rows.cut(at, at + 1)]))
    if fault is Fault.OTHER_LAYER:
        return _swap_layers(engine, good)
    return _lose_window_row(engine, good) if 0 < layout.window_tokens <= at else None


def _swap_layers(engine: Engine, good: State) -> State | None:
    """The first plane changes places with one of the same kind (name but for its layer, sizes)."""
    planes = engine.layout.planes
    kinds = [(re.sub(r"\d+", "", p.name), p.row_bytes, p.window_tokens) for p in planes]
    for first, kind in enumerate(kinds):
        if kind in kinds[first + 1 :]:
            order = list(range(len(planes)))
            other = kinds.index(kind, first + 1)
            order[first], order[other] = other, first
            return replace(good, rows=RowBytes(tuple(good.rows.planes[index] for index in order)))
    return None


def _lose_window_row(engine: Engine, good: State) -> State:
    """Zeroes the oldest row that the tail's first token still sees in the windowed planes.

    A window of w tokens may or may not count the present token: so the two oldest rows.
    """
    oldest = good.position - engine.layout.window_tokens
    spoiled = []
    for plane, array in zip(engine.layout.planes, good.rows.planes, strict=True):
        copy = array.copy()
        if plane.window_tokens:
            copy[oldest : oldest + 2] = 0
        spoiled.append(copy)
    return replace(good, rows=RowBytes(tuple(spoiled)))
