"""One model over several machines: every rank runs its shard, the first keeps the state of all.

The ranks are processes that `mlx.launch` started, each with a shard of the model (tensor or pipeline) in
an engine of its own. The first rank serves: each call of its engine port is told to the others, who make
the same call on their shard. Rows and checkpoints are gathered to the first rank, so one cache holds
those of all ranks under one key, and a restore hands every rank its part back: it resumes where all of
them can, or nowhere. A call that changes a sequence counts only where it went well on all ranks; where
one refuses, the sequence ends on all.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from typing import Any, Protocol, TypeVar

import numpy as np

from headstart.engines.base import Engine, EngineFacts, Logits, SeqId, Step, Vocabulary
from headstart.errors import EngineError, EngineFull
from headstart.prefix.block import Bytes, Plane, RowBytes, StateLayout
from headstart.prefix.tokens import TokenRun

_LAYOUT_BYTES = 1 << 18
_HEAD_BYTES = 4
_Made = TypeVar("_Made")


class Wire(Protocol):
    """What connects the ranks. Every call is made by all of them, in the same order."""

    rank: int
    size: int

    def tell(self, message: bytes) -> bytes:
        """The first rank's `message`, on every rank."""
        ...

    def gather(self, mine: Bytes) -> list[Bytes]:
        """The arrays of all ranks, by rank; all of one length."""
        ...


class Shard:
    """This rank's part of every call. Sequences have the same numbers on all ranks."""

    def __init__(self, local: Engine, wire: Wire) -> None:
        self.local = local
        self._wire = wire
        self.layouts, self.max_sequences, self.max_step_tokens = _agreed_limits(local, wire)
        self._widest = max(one.row_bytes for one in self.layouts)
        self._largest = max(one.checkpoint_bytes for one in self.layouts)
        self._sequences: dict[SeqId, SeqId] = {}
        self._next = 0

    def sequence(self, seq: SeqId) -> SeqId:
        """The local engine's number of sequence `seq`. Raises EngineError for one that is not open."""
        local = self._sequences.get(seq)
        if local is None:
            raise EngineError(f"sequence {seq} is not open")
        return local

    def is_open(self, seq: SeqId) -> bool:
        return seq in self._sequences and self.local.is_open(self._sequences[seq])

    def open(self) -> SeqId:
        return self._new(self.local.open)

    def restore(self, state: bytes, row_count: int | None, marked: bool, position: int) -> SeqId:
        rows, mark = self._mine(state, row_count, marked)
        parts = [] if rows is None else [rows]
        return self._new(lambda: self.local.restore(parts, mark, position))

    def _new(self, make: Callable[[], SeqId]) -> SeqId:
        seq = SeqId(self._next)
        self._next += 1
        made, problem = self._agree(make)
        if made is not None and problem is None:
            self._sequences[seq] = made
            return seq
        if made is not None:
            self.local.close(made)
        raise problem or EngineError("no sequence was made")

    def cut(self, seq: SeqId, state: bytes, row_count: int | None, marked: bool, position: int) -> None:
        local = self.sequence(seq)
        rows, mark = self._mine(state, row_count, marked)
        window = min(self.local.layout.window_tokens, position)
        if rows is not None:
            rows = rows.cut(len(rows) - window, len(rows)) if window else None
        _, problem = self._agree(lambda: self.local.cut(local, position, rows, mark))
        if problem is not None:
            self._end(seq)
            raise problem

    def _agree(self, call: Callable[[], _Made]) -> tuple[_Made | None, EngineError | EngineFull | None]:
        """What `call` made, and why it does not count: this rank's own error, or that another refused."""
        made, problem = None, None
        try:
            made = call()
        except (EngineError, EngineFull) as error:
            problem = error
        fine = [bool(one[0]) for one in self._wire.gather(np.array([problem is None], np.uint8))]
        if problem is None and not all(fine):
            return made, EngineError(f"rank {fine.index(False)} refused what this one did")
        return made, problem

    def forward(self, steps: Sequence[Step]) -> list[Logits | None]:
        """Nothing is read ahead: what the ranks tell each other would come between."""
        return self.local.forward(
            [replace(step, seq=self.sequence(step.seq), greedy=False) for step in steps]
        )

    def window_start(self, seq: SeqId) -> int:
        """The highest of all ranks."""
        mine = np.array([self.local.window_start(self.sequence(seq))], "<i8").view(np.uint8)
        return max(int(one.view("<i8")[0]) for one in self._wire.gather(mine))

    def rows(self, seq: SeqId, start: int, stop: int) -> RowBytes:
        """Those of all ranks."""
        count = stop - start

        def mine() -> Bytes:
            planes = self.local.rows(self.sequence(seq), start, stop).planes
            return np.concatenate([plane.reshape(-1) for plane in planes] or [np.empty(0, np.uint8)])

        planes: list[Bytes] = []
        for data, layout in zip(self._gather(mine, count * self._widest), self.layouts, strict=True):
            planes += _planes(data, layout, count)
        return RowBytes(tuple(planes))

    def checkpoint(self, seq: SeqId) -> bytes:
        """Those of all ranks, one after the other."""

        def mine() -> Bytes:
            state = self.local.checkpoint(self.sequence(seq)) if self.local.layout.recurrent else b""
            return np.frombuffer(state, np.uint8)

        all_ranks = zip(self._gather(mine, self._largest), self.layouts, strict=True)
        return b"".join(data[: layout.checkpoint_bytes].tobytes() for data, layout in all_ranks)

    def close(self, seq: SeqId) -> None:
        self.sequence(seq)
        self._end(seq)

    def _end(self, seq: SeqId) -> None:
        local = self._sequences.pop(seq)
        if self.local.is_open(local):
            self.local.close(local)

    def _gather(self, call: Callable[[], Bytes], length: int) -> list[Bytes]:
        """What `call` gives on all ranks, filled up to `length`. Raises EngineError where one refuses."""
        sent = np.zeros(1 + length, np.uint8)
        problem = None
        try:
            mine = call()
        except EngineError as error:
            problem = error
        else:
            sent[0], sent[1 : 1 + len(mine)] = 1, mine
        found = self._wire.gather(sent)
        fine = [bool(one[0]) for one in found]
        if not all(fine):
            raise problem or EngineError(f"rank {fine.index(False)} refused what this one did")
        return [one[1:] for one in found]

    def _mine(
        self, state: bytes, row_count: int | None, marked: bool
    ) -> tuple[RowBytes | None, bytes | None]:
        """This rank's part of what `_state` has packed."""
        at, count = 0, row_count or 0
        for layout in self.layouts[: self._wire.rank]:
            at += count * layout.row_bytes + marked * layout.checkpoint_bytes
        layout = self.layouts[self._wire.rank]
        data = np.frombuffer(state, np.uint8)
        rows = None if row_count is None else RowBytes(tuple(_planes(data[at:], layout, count)))
        at += count * layout.row_bytes
        return rows, state[at : at + layout.checkpoint_bytes] if marked and layout.recurrent else None


class FirstRank:
    """The Engine port over all ranks, on the first; see `engines.base.Engine`. `local`: its own shard.
    `sharding`: what of the model each rank has, in a word; state of another word is not used."""

    shares_rows = False

    def __init__(self, local: Engine, wire: Wire, sharding: str = "tensor") -> None:
        self._wire = wire
        self._shard = Shard(local, wire)
        layouts = self._shard.layouts
        self.layout = _joined(layouts)
        self.vocabulary: Vocabulary = local.vocabulary
        shards = hashlib.sha256(json.dumps([asdict(layout) for layout in layouts]).encode()).hexdigest()
        parts = {**local.facts.parts, "ranks": f"{wire.size} by {sharding}, {shards[:32]}"}
        self.facts: EngineFacts = replace(local.facts, parts=parts)
        self.max_sequences = self._shard.max_sequences
        self.max_step_tokens = self._shard.max_step_tokens
        self.batches_sequences = local.batches_sequences

    def tokenize(self, text: str, *, special: bool, add_bos: bool) -> TokenRun:
        return self._shard.local.tokenize(text, special=special, add_bos=add_bos)

    def open(self) -> SeqId:
        self._tell("open")
        return self._shard.open()

    def fork(
        self, seq: SeqId, position: int, window_rows: RowBytes | None, checkpoint: bytes | None
    ) -> SeqId:
        raise EngineError("ranks do not share rows; restore from copied rows instead of forking")

    def cut(self, seq: SeqId, position: int, window_rows: RowBytes | None, checkpoint: bytes | None) -> None:
        rows = None if window_rows is None else [window_rows]
        told = self._state(rows, checkpoint)
        self._tell("cut", told[0], seq=seq, rows=told[1], marked=told[2], position=position)
        self._shard.cut(seq, *told, position)

    def forward(self, steps: Sequence[Step]) -> list[Logits | None]:
        for step in steps:
            if not 1 <= len(step.tokens) <= self.max_step_tokens:
                raise EngineError(f"a step carries 1..{self.max_step_tokens} tokens, not {len(step.tokens)}")
        tokens = np.concatenate([step.tokens for step in steps]).astype("<i4").tobytes()
        told = [(step.seq, len(step.tokens), step.wants_logits) for step in steps]
        self._tell("forward", tokens, steps=told)
        return self._shard.forward(steps)

    def is_open(self, seq: SeqId) -> bool:
        return self._shard.is_open(seq)

    def position(self, seq: SeqId) -> int:
        return self._shard.local.position(self._shard.sequence(seq))

    def window_start(self, seq: SeqId) -> int:
        if not self.layout.window_tokens:
            return 0
        self._tell("window_start", seq=seq)
        return self._shard.window_start(seq)

    def rows(self, seq: SeqId, start: int, stop: int) -> RowBytes:
        self._tell("rows", seq=seq, start=start, stop=stop)
        return self._shard.rows(seq, start, stop)

    def checkpoint(self, seq: SeqId) -> bytes:
        self._tell("checkpoint", seq=seq)
        return self._shard.checkpoint(seq)

    def restore(self, rows: Sequence[RowBytes], checkpoint: bytes | None, position: int) -> SeqId:
        told = self._state(rows, checkpoint)
        self._tell("restore", told[0], rows=told[1], marked=told[2], position=position)
        return self._shard.restore(*told, position)

    def close(self, seq: SeqId) -> None:
        self._tell("close", seq=seq)
        self._shard.close(seq)

    def shutdown(self) -> None:
        self._tell("shutdown")
        self._shard.local.shutdown()

    def _tell(self, call: str, data: bytes = b"", **arguments: Any) -> None:
        head = json.dumps({"call": call, **arguments}).encode()
        self._wire.tell(len(head).to_bytes(_HEAD_BYTES, "little") + head + data)

    def _state(
        self, rows: Sequence[RowBytes] | None, checkpoint: bytes | None
    ) -> tuple[bytes, int | None, bool]:
        """Rows and checkpoint of all ranks as bytes, rank by rank; how many rows; whether a checkpoint is
        there. Raises EngineError where they are not those of all ranks, before anybody is told."""
        joined = RowBytes.join(rows) if rows else None
        if joined is not None:
            _check_rows(joined, self.layout)
        if checkpoint is not None and len(checkpoint) != self.layout.checkpoint_bytes:
            raise EngineError(f"a checkpoint is {self.layout.checkpoint_bytes} bytes, not {len(checkpoint)}")
        parts: list[bytes] = []
        plane, at = 0, 0
        for layout in self._shard.layouts:
            if joined is not None:
                parts += [array.tobytes() for array in joined.planes[plane : plane + len(layout.planes)]]
            if checkpoint is not None:
                parts.append(checkpoint[at : at + layout.checkpoint_bytes])
            plane, at = plane + len(layout.planes), at + layout.checkpoint_bytes
        return b"".join(parts), None if joined is None else len(joined), checkpoint is not None


def follow(local: Engine, wire: Wire) -> None:
    """Makes the calls that the first rank makes, until it shuts down. On every other rank. What is refused
    here, the first rank learns, and tells whoever asked."""
    shard = Shard(local, wire)
    while True:
        message = wire.tell(b"")
        head = _HEAD_BYTES + int.from_bytes(message[:_HEAD_BYTES], "little")
        told = json.loads(message[_HEAD_BYTES:head])
        if told["call"] == "shutdown":
            local.shutdown()
            return
        try:
            _CALLS[told["call"]](shard, told, message[head:])
        except (EngineError, EngineFull):
            continue


_Told = dict[str, Any]


def _forward(shard: Shard, told: _Told, data: bytes) -> None:
    tokens = np.frombuffer(data, "<i4").astype(np.int32)
    steps, at = [], 0
    for seq, count, wants in told["steps"]:
        steps.append(Step(SeqId(seq), tokens[at : at + count], wants))
        at += count
    shard.forward(steps)


_CALLS: dict[str, Callable[[Shard, _Told, bytes], object]] = {
    "open": lambda shard, told, data: shard.open(),
    "cut": lambda shard, told, data: shard.cut(
        told["seq"], data, told["rows"], told["marked"], told["position"]
    ),
    "forward": _forward,
    "window_start": lambda shard, told, data: shard.window_start(told["seq"]),
    "rows": lambda shard, told, data: shard.rows(told["seq"], told["start"], told["stop"]),
    "checkpoint": lambda shard, told, data: shard.checkpoint(told["seq"]),
    "restore": lambda shard, told, data: shard.restore(data, told["rows"], told["marked"], told["position"]),
    "close": lambda shard, told, data: shard.close(told["seq"]),
}


def _agreed_limits(local: Engine, wire: Wire) -> tuple[list[StateLayout], int, int]:
    """The layouts of all ranks; sequences and tokens a step that all of them can take. Raises EngineError
    where they are not of one model."""
    about = {**asdict(local.layout), "limits": [local.max_sequences, local.max_step_tokens]}
    text = json.dumps(about).encode()
    if len(text) > _LAYOUT_BYTES:
        raise EngineError(
            f"a layout of {len(local.layout.planes)} planes is too large to be told to other ranks"
        )
    found = [
        json.loads(one.tobytes()) for one in wire.gather(np.frombuffer(text.ljust(_LAYOUT_BYTES), np.uint8))
    ]
    limits = [one.pop("limits") for one in found]
    layouts = [
        StateLayout(**{**one, "planes": tuple(Plane(**plane) for plane in one["planes"])}) for one in found
    ]
    if len({(one.context_tokens, one.vocab_size) for one in layouts}) > 1:
        raise EngineError("the ranks have different models or options: start all of them alike")
    return layouts, min(sequences for sequences, _ in limits), min(tokens for _, tokens in limits)


def _joined(layouts: Sequence[StateLayout]) -> StateLayout:
    """The state of all ranks as one: planes are named after their rank."""
    planes = tuple(
        replace(plane, name=f"rank{rank}.{plane.name}")
        for rank, layout in enumerate(layouts)
        for plane in layout.planes
    )
    size = sum(layout.checkpoint_bytes for layout in layouts)
    return replace(layouts[0], planes=planes, checkpoint_bytes=size)


def _planes(data: Bytes, layout: StateLayout, count: int) -> list[Bytes]:
    """The planes of `count` rows that lie one after the other at the beginning of `data`."""
    planes, at = [], 0
    for plane in layout.planes:
        size = count * plane.row_bytes
        planes.append(data[at : at + size].reshape(count, plane.row_bytes))
        at += size
    return planes


def _check_rows(rows: RowBytes, layout: StateLayout) -> None:
    shapes = [plane.shape for plane in rows.planes]
    if shapes != [(len(rows), plane.row_bytes) for plane in layout.planes]:
        raise EngineError("rows of other planes or sizes than the ranks have")
