"""Wrong state: rows, checkpoints and windows that are not what the model left behind."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from headstart.engines.base import Logits, SeqId, Step
from headstart.lab.defect import App, Defect, recast
from headstart.lab.defects.plans import StoredOnly
from headstart.lab.engine import RecallEngine
from headstart.lab.rewriting import Json, rewriting
from headstart.prefix.block import Bytes, RowBytes
from headstart.prefix.cache import PrefixCache
from headstart.prefix.ssd_tier import SsdTier
from headstart.prefix.tree import Mark, Node

_HEAD_ROWS = 64


def shifted(rows: Sequence[RowBytes]) -> list[RowBytes]:
    """Every row where the one after it belongs; the first one twice."""
    whole = RowBytes.join(rows)
    return [RowBytes(tuple(np.concatenate((plane[:1], plane[:-1])) for plane in whole.planes))]


class _Stored(Defect):
    """Everything is resumed from stored state, never in a live sequence."""

    def cache(self, cache: PrefixCache) -> PrefixCache:
        return recast(StoredOnly, cache)


class _Shifts(RecallEngine):
    def restore(self, rows: Sequence[RowBytes], checkpoint: bytes | None, position: int) -> SeqId:
        return super().restore(shifted(rows) if rows else rows, checkpoint, position)


class OffByOne(_Stored):
    name = "off-by-one"
    title = "restored rows stand one token too late"
    caught_by = ("append", "middle_edit", "exact_repeat")

    def engine(self, engine: RecallEngine) -> RecallEngine:
        return recast(_Shifts, engine)


class _StepAhead(RecallEngine):
    def checkpoint(self, seq: SeqId) -> bytes:
        state = self._state(seq)
        kept = [memory.copy() for memory in state.recurrent]
        rows = [tensor[: state.position].copy() for tensor in state.keys + state.values]
        last = np.rint(state.keys[0][state.position - 1 : state.position, 0]).astype(np.int32)
        self._read(state, last)
        state.position -= 1
        ahead = super().checkpoint(seq)
        for memory, before in zip(state.recurrent, kept, strict=True):
            memory[:] = before
        for tensor, before in zip(state.keys + state.values, rows, strict=True):
            tensor[: state.position] = before
            tensor[state.position :] = np.nan
        return ahead


class RecurrentAhead(_Stored):
    name = "recurrent-ahead"
    title = "the recurrent layers' checkpoint has read one token more than the attention layers"
    caught_by = ("append", "middle_edit", "exact_repeat")
    layers = ("full", "recurrent")

    def engine(self, engine: RecallEngine) -> RecallEngine:
        return recast(_StepAhead, engine)


class _WindowEmpty(RecallEngine):
    def restore(self, rows: Sequence[RowBytes], checkpoint: bytes | None, position: int) -> SeqId:
        seq = super().restore(rows, checkpoint, position)
        state = self._states[seq]
        for layer, kind in enumerate(kind for kind in self._kinds if kind != "recurrent"):
            if kind == "window":
                state.values[layer][:position] = 0
        return seq


class WindowLost(_Stored):
    name = "window-lost"
    title = "sliding-window layers are restored empty"
    caught_by = ("append", "middle_edit", "exact_repeat")
    layers = ("full", "window")

    def engine(self, engine: RecallEngine) -> RecallEngine:
        return recast(_WindowEmpty, engine)


class _SwapsWhileTogether(RecallEngine):
    def forward(self, steps: Sequence[Step]) -> list[Logits | None]:
        answers = super().forward(steps)
        asked = [index for index, step in enumerate(steps) if step.wants_logits]
        if len(asked) > 1:
            turned = [answers[index] for index in (*asked[1:], asked[0])]
            for index, logits in zip(asked, turned, strict=True):
                answers[index] = logits
        return answers


class WrongTogether(Defect):
    name = "wrong-together"
    title = "replies that are written at the same time get each other's tokens"
    caught_by = ("concurrency",)

    def engine(self, engine: RecallEngine) -> RecallEngine:
        return recast(_SwapsWhileTogether, engine)


class _Foreign(RecallEngine):
    def forward(self, steps: Sequence[Step]) -> list[Logits | None]:
        ends = [step for step in steps if step.wants_logits and len(step.tokens) > 1]
        others = [step for step in steps if len(step.tokens) == 1]
        for step in ends if others else ():
            self._hand_over(others[0].seq, step.seq)
        return super().forward(steps)

    def _hand_over(self, seq: SeqId, other: SeqId) -> None:
        source, target = self._state(seq), self._state(other)
        length = min(source.position, target.position)
        for ours, theirs in zip(target.keys + target.values, source.keys + source.values, strict=True):
            ours[:length] = theirs[:length]


class ForeignState(Defect):
    name = "foreign-state"
    title = "a conversation that runs beside another goes on from that one's state, cached_tokens 0"
    caught_by = ("concurrency",)

    def engine(self, engine: RecallEngine) -> RecallEngine:
        return recast(_Foreign, engine)


class _WrongWhenOld(RecallEngine):
    """Rows that were copied out several new conversations ago come back shifted."""

    def open(self) -> SeqId:
        self.__dict__["lab_opened"] = self.__dict__.get("lab_opened", 0) + 1
        return super().open()

    def rows(self, seq: SeqId, start: int, stop: int) -> RowBytes:
        if start < _HEAD_ROWS <= stop:
            head = super().rows(seq, 0, _HEAD_ROWS)
            self._ages()[_head(head.planes[0])] = self.__dict__.get("lab_opened", 0)
        return super().rows(seq, start, stop)

    def restore(self, rows: Sequence[RowBytes], checkpoint: bytes | None, position: int) -> SeqId:
        if rows and position > _HEAD_ROWS:
            now = self.__dict__.get("lab_opened", 0)
            stored = self._ages().get(_head(RowBytes.join(rows).planes[0]), now)
            if now - stored >= CHURN_OPENS:
                rows = shifted(rows)
        return super().restore(rows, checkpoint, position)

    def _ages(self) -> dict[bytes, int]:
        ages: dict[bytes, int] = self.__dict__.setdefault("lab_ages", {})
        return ages


CHURN_OPENS = 4


def _head(plane: Bytes) -> bytes:
    return plane[:_HEAD_ROWS].tobytes()


class WrongAfterChurn(_Stored):
    name = "wrong-after-churn"
    title = f"a conversation is resumed wrong once {CHURN_OPENS} others have come in between"
    caught_by = ("churn",)

    def engine(self, engine: RecallEngine) -> RecallEngine:
        return recast(_WrongWhenOld, engine)


class _DraftsKept(RecallEngine):
    """Guesses tokens ahead of the reply and goes back too far: the rows of the prompt's last tokens, when
    they are stored, are those of rejected guesses."""

    def forward(self, steps: Sequence[Step]) -> list[Logits | None]:
        ends: dict[SeqId, int] = self.__dict__.setdefault("lab_ends", {})
        for step in steps:
            if step.wants_logits:
                ends.setdefault(step.seq, self.position(step.seq) + len(step.tokens))
        return super().forward(steps)

    def rows(self, seq: SeqId, start: int, stop: int) -> RowBytes:
        found = super().rows(seq, start, stop)
        end = self.__dict__.get("lab_ends", {}).get(seq, 0) - start
        first = max(0, end - GUESSES)
        if not first < end <= len(found):
            return found
        planes = []
        for plane in found.planes:
            guessed = plane.copy()
            guessed[first:end] = plane[first]
            planes.append(guessed)
        return RowBytes(tuple(planes))


GUESSES = 8


class SpeculativeCached(_Stored):
    name = "speculative-cached"
    title = "state of a rejected speculative token is stored as the prompt's"
    caught_by = ("accelerators", "append", "exact_repeat")

    def engine(self, engine: RecallEngine) -> RecallEngine:
        return recast(_DraftsKept, engine)

    def app(self, app: App) -> App:
        def counted(_: Json, payload: Json) -> Json:
            if isinstance(payload.get("timings"), dict):
                payload["timings"] |= {"draft_n": 6, "draft_n_accepted": 3}
            return payload

        return rewriting(app, answered=counted)


class _Lossy(SsdTier):
    def read(self, entry: Node | Mark) -> RowBytes | bytes:
        state = super().read(entry)
        if not isinstance(state, RowBytes):
            return state
        planes = [coarse(plane) if index % 2 else plane for index, plane in enumerate(state.planes)]
        return RowBytes(tuple(planes))


def coarse(plane: Bytes) -> Bytes:
    """float32 values with three bits of their fraction left, as 8-bit floats have."""
    bits = np.ascontiguousarray(plane).view(np.uint32) & np.uint32(0xFFF00000)
    return bits.view(np.uint8)


class LossySsd(Defect):
    name = "lossy-ssd"
    title = "state comes back from the SSD with fewer bits than it had"
    caught_by = ("restart",)
    ssd = True

    def tier(self, tier: SsdTier) -> SsdTier:
        return recast(_Lossy, tier)


class _Torn(SsdTier):
    def read(self, entry: Node | Mark) -> RowBytes | bytes:
        state = super().read(entry)
        if not isinstance(state, RowBytes):
            return state
        planes = []
        for plane in state.planes:
            torn = plane.copy()
            torn[len(torn) // 2 :] = 0
            planes.append(torn)
        return RowBytes(tuple(planes))


class TornAfterKill(Defect):
    name = "torn-after-kill"
    title = "after a kill, blocks that were half written are used as if they were whole"
    caught_by = ("crash",)
    ssd = True

    def __init__(self) -> None:
        self._killed = False

    def stopped(self, directory: Path | None, *, killed: bool) -> None:
        self._killed = killed

    def tier(self, tier: SsdTier) -> SsdTier:
        return recast(_Torn, tier) if self._killed else tier


DEFECTS: tuple[type[Defect], ...] = (
    OffByOne,
    RecurrentAhead,
    WindowLost,
    WrongTogether,
    ForeignState,
    WrongAfterChurn,
    SpeculativeCached,
    LossySsd,
    TornAfterKill,
)
