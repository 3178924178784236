"""Several ranks behind one engine port: the equality suite over them, and what happens where one refuses."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import pytest

from headstart.engines.base import Logits, SeqId, Step
from headstart.engines.mlx.ranks import FirstRank, follow
from headstart.engines.toy import ToyEngine
from headstart.errors import EngineError, EngineFull
from headstart.prefix.block import Bytes, RowBytes
from headstart.prefix.tokens import TokenRun
from tests.engines.equality import random_tokens


@dataclass(frozen=True)
class Left:
    """What reading left behind on all ranks."""

    rows: RowBytes
    marks: dict[int, bytes]
    logits: Logits


class Threads:
    """A wire between threads of one process."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.slots: list[Bytes | bytes] = [b""] * size
        self.barrier = threading.Barrier(size, timeout=30)

    def exchange(self, rank: int, mine: Bytes | bytes) -> list[Bytes | bytes]:
        self.slots[rank] = mine
        self.barrier.wait()
        found = list(self.slots)
        self.barrier.wait()
        return found


class End:
    def __init__(self, threads: Threads, rank: int) -> None:
        self._threads, self.rank, self.size = threads, rank, threads.size

    def tell(self, message: bytes) -> bytes:
        told = self._threads.exchange(self.rank, message)[0]
        assert isinstance(told, bytes)
        return told

    def gather(self, mine: Bytes) -> list[Bytes]:
        return [np.asarray(one).copy() for one in self._threads.exchange(self.rank, mine)]


class Refusing(ToyEngine):
    """Refuses every restore and cut while `refuses`."""

    refuses = False

    def restore(self, rows: Sequence[RowBytes], checkpoint: bytes | None, position: int) -> SeqId:
        if self.refuses:
            raise EngineError("no")
        return super().restore(rows, checkpoint, position)

    def cut(self, seq: SeqId, position: int, window_rows: RowBytes | None, checkpoint: bytes | None) -> None:
        if self.refuses:
            raise EngineError("no")
        super().cut(seq, position, window_rows, checkpoint)


@contextmanager
def ranks(*engines: ToyEngine, sharding: str = "tensor") -> Iterator[FirstRank]:
    """Engines of any layouts as the shards of one: each reads the same tokens."""
    threads = Threads(len(engines))
    others = [
        threading.Thread(target=follow, args=(engine, End(threads, rank)), daemon=True)
        for rank, engine in enumerate(engines)
        if rank
    ]
    for other in others:
        other.start()
    first = FirstRank(engines[0], End(threads, 0), sharding)
    try:
        yield first
    finally:
        first.shutdown()
        for other in others:
            other.join(30)
            assert not other.is_alive()


SHARDS = {
    "tensor": (("full", "window", "recurrent"),) * 2,
    "pipeline": (("full",), ("window", "full"), ("recurrent", "window")),
    "one recurrent": (("full",), ("recurrent",)),
}


def shards(name: str, seed: int = 0) -> list[ToyEngine]:
    windows = (24, 24, 8)
    return [
        ToyEngine(layers, seed=seed + rank, window=windows[rank], context_tokens=256)
        for rank, layers in enumerate(SHARDS[name])
    ]


def read_all(engine: FirstRank, seq: SeqId, tokens: TokenRun, stops: Sequence[int] = ()) -> Left:
    """Reads in steps of up to five tokens, none across a stop."""
    parts, marks, logits, start = [], {}, None, engine.position(seq)
    begin = start
    while start < begin + len(tokens):
        stop = min([begin + len(tokens), start + 5, *(at for at in stops if at > start)])
        step = Step(seq, tokens[start - begin : stop - begin], wants_logits=stop == begin + len(tokens))
        (logits,) = engine.forward([step])
        parts.append(engine.rows(seq, start, stop).owned())
        if engine.layout.recurrent:
            marks[stop] = engine.checkpoint(seq)
        start = stop
    assert logits is not None
    return Left(RowBytes.join(parts), marks, logits)


@pytest.mark.parametrize("cut", [False, True], ids=["restore", "cut"])
@pytest.mark.parametrize("name", SHARDS)
def test_every_rank_goes_on_where_it_was(name: str, cut: bool) -> None:
    """Rows and checkpoints of all ranks, and the logits, are those of a run that began at 0."""
    random = np.random.default_rng(5)
    with ranks(*shards(name)) as engine:
        for position in (1, 7, 8, 9, 23, 24, 25, 60):
            old, tail = random_tokens(random, engine, 80), random_tokens(random, engine, 12)
            seq = engine.open()
            left = read_all(engine, seq, old, (position,))
            first = max(0, position - engine.layout.window_tokens)
            if cut:
                missing = engine.layout.window_tokens and engine.window_start(seq) > first
                window = left.rows.cut(first, position) if missing else None
                engine.cut(seq, position, window, left.marks.get(position))
            else:
                engine.close(seq)
                parts = [left.rows.cut(0, position // 2), left.rows.cut(position // 2, position)]
                seq = engine.restore(parts, left.marks.get(position), position)
            warm = read_all(engine, seq, tail)
            other = engine.open()
            cold = read_all(engine, other, np.concatenate([old[:position], tail]), (position,))
            assert warm.logits.tobytes() == cold.logits.tobytes()
            new = cold.rows.cut(position, position + 12)
            assert [a.tobytes() for a in warm.rows.planes] == [a.tobytes() for a in new.planes]
            assert warm.marks == {at: mark for at, mark in cold.marks.items() if at > position}
            engine.close(seq)
            engine.close(other)


def test_another_ranks_rows_in_its_place_are_noticed() -> None:
    """The check above can fail: the ranks' parts have changed places."""
    random = np.random.default_rng(6)
    with ranks(*shards("tensor")) as engine:
        old = random_tokens(random, engine, 20)
        seq = engine.open()
        left = read_all(engine, seq, old)
        half = len(left.rows.planes) // 2
        swapped = RowBytes((*left.rows.planes[half:], *left.rows.planes[:half]))
        logits = []
        for rows in (left.rows, swapped):
            again = engine.restore([rows], left.marks[20], 20)
            logits.append(read_all(engine, again, old[:3]).logits.tobytes())
            engine.close(again)
        assert logits[0] != logits[1]


def test_where_one_rank_refuses_nobody_goes_on() -> None:
    first, second = (Refusing(("full", "recurrent"), seed=rank) for rank in range(2))
    tokens = np.arange(10, dtype=np.int32)
    with ranks(first, second) as engine:
        seq = engine.open()
        left = read_all(engine, seq, tokens, (4,))
        for one, words in ((second, "rank 1 refused"), (first, "^no$")):
            one.refuses = True
            with pytest.raises(EngineError, match=words):
                engine.restore([left.rows], left.marks[10], 10)
            one.refuses = False
            engine.rows(seq, 0, 1)  # the other rank has done all before it
            assert len(first._states) == len(second._states) == 1
        again = engine.restore([left.rows], left.marks[10], 10)
        assert again not in (seq, None) and engine.position(again) == 10
        second.refuses = True
        with pytest.raises(EngineError, match="rank 1 refused"):
            engine.cut(again, 4, None, left.marks[4])
        second.refuses = False
        assert not engine.is_open(again) and engine.is_open(seq)
        engine.rows(seq, 0, 1)
        assert len(first._states) == len(second._states) == 1
        engine.cut(seq, 4, None, left.marks[4])
        assert read_all(engine, seq, tokens[4:]).logits.tobytes() == left.logits.tobytes()


def test_errors_of_all_ranks_are_those_of_one() -> None:
    with ranks(*shards("pipeline")) as engine:
        with pytest.raises(EngineError, match="sequence 5 is not open"):
            engine.rows(SeqId(5), 0, 1)
        seq = engine.open()
        with pytest.raises(EngineError, match="a step carries"):
            engine.forward([Step(seq, np.zeros(0, np.int32), wants_logits=True)])
        with pytest.raises(EngineError, match=r"rows 0\.\.9 asked"):
            engine.rows(seq, 0, 9)
        with pytest.raises(EngineError, match=r"a checkpoint is .* bytes, not 3"):
            engine.restore([], b"abc", 0)
        with pytest.raises(EngineError, match="rows of other planes"):
            engine.restore([RowBytes((np.zeros((1, 3), np.uint8),))], None, 1)
        for _ in range(engine.max_sequences - 1):
            engine.open()
        with pytest.raises(EngineFull):
            engine.open()
        engine.forward([Step(seq, np.zeros(3, np.int32), wants_logits=False)])
        assert engine.position(seq) == 3


def test_ranks_of_different_models_are_refused() -> None:
    threads = Threads(2)
    problems: list[str] = []

    def begin(rank: int, context: int) -> None:
        try:
            FirstRank(ToyEngine(context_tokens=context), End(threads, rank))
        except EngineError as error:
            problems.append(str(error))

    both = [threading.Thread(target=begin, args=(rank, 64 + rank)) for rank in range(2)]
    for one in both:
        one.start()
    for one in both:
        one.join()
    assert len(problems) == 2 and "start all of them alike" in problems[0]


def test_how_the_model_is_divided_is_part_of_what_state_belongs_to() -> None:
    """Shards of one layout may still hold other numbers."""
    parts = []
    for sharding in ("tensor", "pipeline"):
        with ranks(*shards("tensor"), sharding=sharding) as first:
            parts.append(first.facts.parts)
    assert parts[0]["ranks"].startswith("2 by tensor, ")
    assert parts[1] == {**parts[0], "ranks": parts[0]["ranks"].replace("tensor", "pipeline")}
