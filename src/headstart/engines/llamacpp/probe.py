"""The proof, at load, that rows can be cut, copied out, put back and gone on from.

Two things are shown with a few tokens of the loaded model itself. *State*: a sequence is read in two
chunks; its rows up to the place between them, put into another sequence that then reads the same
second chunk, must give the same scores. *Bits*: which of the two stronger promises of headstart hold
here: that a repeated prompt goes on bit for bit, and that a restored one equals a cold run.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from headstart.engines.base import Logits, SeqId, Step, Vocabulary
from headstart.engines.llamacpp.binding import Model
from headstart.engines.llamacpp.lanes import Lanes
from headstart.engines.llamacpp.shared import Shared
from headstart.errors import EngineError
from headstart.prefix.block import RowBytes, TokenRun

__all__ = ["Proof", "prove"]

Sequences = Lanes | Shared

SMALL_MODEL_PARAMETERS = 300_000_000
"""Up to here a long probe stays under two seconds on a few cores."""
LONG_PROBE = (11, 75)
SHORT_PROBE = (5, 14)
"""(place of the cut, tokens in all). In the long probe the rest has 64 tokens: shorter
chunks take other paths through ggml's matrix products. All tokens are 3 more than a multiple of 4,
the rest is a multiple of 16: products that take rows in groups treat the last row differently."""
DECODED = 4
RING_BYTES = 256 << 20
SHARED_CELLS = "sequences share cells: replies equal a cold run within rounding, not bit for bit"
NOT_EQUAL = (
    "a prompt restored inside a chunk equals a cold run within rounding, not bit for bit: "
    "this model's matrix products depend on the shape of the chunk"
)
NOT_EQUAL_RECURRENT = (
    "a restored prompt equals, bit for bit, a cold run that stops at the same checkpoints; "
    "a run without stops differs within rounding"
)
FLOORS = 4.0
"""How many times the difference of two cold runs a restored one may differ, where bits do not repeat."""


@dataclass(frozen=True)
class Proof:
    """What was shown; `notes` say what to expect where something did not hold."""

    state_proved: bool
    exact_repeat: bool
    restore_equals_cold: bool
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Kept:
    """What a sequence left behind at a position."""

    rows: RowBytes
    checkpoint: bytes | None
    position: int


def prove(sequences: Sequences, vocabulary: Vocabulary, model: Model) -> Proof:
    """Runs the probe. An EngineError on the way is a proof that failed, with the error as its last note."""
    long = model.parameters <= SMALL_MODEL_PARAMETERS
    at, count = LONG_PROBE if long else SHORT_PROBE
    if count > min(sequences.layout.context_tokens, sequences.max_step_tokens):
        at, count = SHORT_PROBE
    probe = _Probe(sequences, _tokens(vocabulary, count + DECODED), at, count, repacked=model.repacked)
    try:
        return probe.run(compare_with_one_chunk=long)
    except EngineError as error:
        probe.close_all()
        return Proof(False, False, False, (f"the probe failed: {error}",))


def _tokens(vocabulary: Vocabulary, count: int) -> TokenRun:
    """The same ordinary tokens every time, none of them control tokens."""
    drawn = np.random.default_rng(20).permutation(len(vocabulary.pieces))[: 8 * count]
    ordinary = [t for t in drawn if t not in vocabulary.control and t not in vocabulary.end_of_generation]
    return np.resize(np.array(ordinary, np.int32), count)


class _Probe:
    def __init__(
        self, sequences: Sequences, tokens: TokenRun, at: int, count: int, *, repacked: bool
    ) -> None:
        self._repacked = repacked
        self._sequences = sequences
        self._tokens = tokens
        self._at = at
        self._count = count
        self._opened: list[SeqId] = []

    def run(self, *, compare_with_one_chunk: bool) -> Proof:
        notes: list[str] = []
        first = self._open()
        self._read(first, 0, self._at)
        middle = self._keep(first)
        cold = self._read(first, self._at, self._count)
        end = self._keep(first)
        decoded = self._decode(first, self._count)
        restored = self._restored(middle, self._count)
        state = np.array_equal(cold, restored) or self._within_floor(middle, cold, restored, notes)
        if not state:
            return Proof(False, False, False, tuple(notes))
        if isinstance(self._sequences, Shared):
            self.close_all()
            return Proof(True, False, False, (SHARED_CELLS,))
        exact = self._repeats(end, decoded) and self._ring_repeats(end, notes)
        if not exact:
            notes.append("a repeated prompt does not go on bit for bit on this machine")
        equal = compare_with_one_chunk and self._equals_cold(restored)
        if not compare_with_one_chunk:
            notes.append(
                "whether a restored prompt equals a cold one bit for bit was not probed (large model)"
            )
        elif not equal:
            notes.append(NOT_EQUAL_RECURRENT if self._sequences.layout.recurrent else NOT_EQUAL)
        self.close_all()
        return Proof(True, exact, equal, tuple(notes))

    # steps

    def _open(self) -> SeqId:
        seq = self._sequences.open()
        self._opened.append(seq)
        return seq

    def _read(self, seq: SeqId, start: int, stop: int) -> Logits:
        logits = self._sequences.forward([Step(seq, self._tokens[start:stop], wants_logits=True)])[0]
        if logits is None:
            raise EngineError("no scores came back")
        return logits

    def _decode(self, seq: SeqId, start: int) -> list[Logits]:
        return [self._read(seq, i, i + 1) for i in range(start, start + DECODED)]

    def _keep(self, seq: SeqId) -> _Kept:
        sequences = self._sequences
        position = sequences.position(seq)
        rows = sequences.rows(seq, 0, position)
        return _Kept(rows, sequences.checkpoint(seq) if sequences.layout.recurrent else None, position)

    def _put_back(self, kept: _Kept) -> SeqId:
        self.close_all()
        seq = self._sequences.restore([kept.rows], kept.checkpoint, kept.position)
        self._opened.append(seq)
        return seq

    def _restored(self, kept: _Kept, stop: int) -> Logits:
        return self._read(self._put_back(kept), kept.position, stop)

    def close_all(self) -> None:
        for seq in self._opened:
            if self._sequences.is_open(seq):
                self._sequences.close(seq)
        self._opened.clear()

    # judgements

    def _within_floor(self, kept: _Kept, cold: Logits, restored: Logits, notes: list[str]) -> bool:
        """Where bits differ: no further than two cold runs do, and much less than with wrong rows."""
        self.close_all()
        if self._sequences.max_sequences > 1:  # so that the second run gets other cells than the first
            self._read(self._open(), 0, self._at + 1)
        again = self._open()
        self._read(again, 0, self._at)
        floor = _difference(cold, self._read(again, self._at, self._count))
        wrong = _Kept(_shifted(kept.rows), kept.checkpoint, kept.position)
        control = _difference(cold, self._restored(wrong, self._count)) if kept.rows.planes else np.inf
        found = _difference(cold, restored)
        if found <= FLOORS * floor and 2 * found < control:
            return True
        notes.append(
            f"restored rows gave scores {found:.3g} off, two cold runs differ by {floor:.3g}, "
            f"wrong rows by {control:.3g}"
        )
        return False

    def _repeats(self, end: _Kept, decoded: list[Logits]) -> bool:
        again = self._decode(self._put_back(end), self._count)
        return all(np.array_equal(a, b) for a, b in zip(decoded, again, strict=True))

    def _ring_repeats(self, end: _Kept, notes: list[str]) -> bool:
        """The same where the window's ring of cells has gone round: the rows at hand, over and over,
        fill it to just before its end, the first sequence reads on across it, the second is restored
        behind it."""
        layout, cells = self._sequences.layout, self._sequences.window_cells
        start = cells - 2
        if not cells or start + 2 * DECODED > layout.context_tokens:
            return True
        if layout.row_bytes * cells > RING_BYTES or layout.recurrent:
            notes.append("whether sequences longer than the window repeat bit for bit was not probed")
            return True
        order = np.arange(start) % len(end.rows)
        rows = RowBytes(tuple(plane[order] for plane in end.rows.planes))
        seq = self._put_back(_Kept(rows, end.checkpoint, start))
        self._read(seq, 0, DECODED)
        behind = _Kept(
            RowBytes.join([rows, self._sequences.rows(seq, start, start + DECODED)]), None, start + DECODED
        )
        expected = self._decode(seq, self._count)
        again = self._decode(self._put_back(behind), self._count)
        return all(np.array_equal(a, b) for a, b in zip(expected, again, strict=True))

    def _equals_cold(self, restored: Logits) -> bool:
        """Whether all tokens read in one chunk give what rows cut out of that chunk and the rest do.

        With repacked weights the last few tokens of a chunk can come out another way. Whether they do
        hangs on the tokens, so no probe can show that they never do. A recurrent state cannot be cut
        out of a chunk: there it is what a run in two chunks gave.
        """
        if self._repacked:
            return False
        self.close_all()
        seq = self._open()
        cold = self._read(seq, 0, self._count)
        if self._sequences.layout.recurrent:
            return np.array_equal(cold, restored)
        rows = self._sequences.rows(seq, 0, self._count)
        seq = self._put_back(_Kept(rows.cut(0, self._at), None, self._at))
        logits = self._read(seq, self._at, self._count)
        again = self._sequences.rows(seq, self._at, self._count)
        same_rows = all(map(np.array_equal, rows.cut(self._at, self._count).planes, again.planes))
        return same_rows and np.array_equal(cold, logits)


def _difference(a: Logits, b: Logits) -> float:
    return float(np.abs(a - b).max())


def _shifted(rows: RowBytes) -> RowBytes:
    return RowBytes(tuple(np.roll(plane, 1, axis=0) for plane in rows.planes))
