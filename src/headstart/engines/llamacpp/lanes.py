"""`--batching exact`: every live sequence has a lane, a context of its own over the shared weights.

A lane's cells always start at 0 and hold one sequence, so the same tokens leave the same bits in
the same cells, whatever ran before or beside it. Lanes are made when first needed and used again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from headstart.engines.base import Logits, SeqId, Step
from headstart.engines.llamacpp.binding import Context, Run
from headstart.engines.llamacpp.live import LiveSequence, closed_on_failure, window_before
from headstart.engines.llamacpp.ring import cut_leaves_places
from headstart.engines.llamacpp.transfer import Transfer, WindowRows
from headstart.errors import EngineError, EngineFull, ModelError
from headstart.prefix.block import RowBytes, StateLayout

__all__ = ["LANE_SCRATCH", "LANE_SEQUENCE", "Lane", "Lanes"]

LANE_SEQUENCE = 0
LANE_SCRATCH = 1
"""Beyond the one sequence the lane is made for. A unified KV cache takes any number below
LLAMA_MAX_SEQ; the recurrent memory ignores it, so ranges are copied out without recurrent state."""


@dataclass
class Lane(LiveSequence):
    """A context for one sequence."""

    context: Context
    transfer: Transfer

    def empty(self) -> None:
        self.context.clear()
        self.position = 0
        self.window_start = 0


class Lanes:
    """Live sequences, each in its lane. `make_lane` makes a context for one sequence."""

    batches_sequences = False
    shares_rows = False

    def __init__(
        self, layout: StateLayout, max_sequences: int, max_step_tokens: int, make_lane: Callable[[], Lane]
    ) -> None:
        self.layout = layout
        self.max_sequences = max_sequences
        self.max_step_tokens = max_step_tokens
        self._make_lane = make_lane
        self._open: dict[SeqId, Lane] = {}
        self._idle: list[Lane] = []
        self._made: list[Lane] = []
        self._next_id = 0

    def open(self) -> SeqId:
        if len(self._open) >= self.max_sequences:
            raise EngineFull(f"all {self.max_sequences} live sequences are taken")
        if not self._idle:
            self._idle.append(self._new_lane())
        seq = SeqId(self._next_id)
        self._next_id += 1
        self._open[seq] = self._idle.pop()
        return seq

    def _new_lane(self) -> Lane:
        try:
            lane = self._make_lane()
        except ModelError as error:
            if not self._made:
                raise
            raise EngineFull(f"no memory for another lane: {error}") from error
        self._made.append(lane)
        return lane

    @property
    def window_cells(self) -> int:
        """Cells of the window's ring in a lane, 0 where there is none or no lane yet."""
        return self._made[0].context.window_cells if self._made else 0

    def is_open(self, seq: SeqId) -> bool:
        """Whether `seq` is live."""
        return seq in self._open

    def close(self, seq: SeqId) -> None:
        lane = self._open.pop(seq)
        lane.empty()
        self._idle.append(lane)

    def fork(
        self, seq: SeqId, position: int, window_rows: RowBytes | None, checkpoint: bytes | None
    ) -> SeqId:
        raise EngineError("lanes share no rows: restore instead of forking")

    def forward(self, steps: Sequence[Step]) -> list[Logits | None]:
        for step in steps:
            self._check(step)
        return [self._read(self._open[step.seq], step) for step in steps]

    def _check(self, step: Step) -> None:
        lane, count = self._open[step.seq], len(step.tokens)
        if not 1 <= count <= self.max_step_tokens:
            raise EngineError(f"a step has {count} tokens, expected 1 to {self.max_step_tokens}")
        if lane.position + count > self.layout.context_tokens:
            raise EngineFull(
                f"{count} more tokens at position {lane.position} pass the end of the context "
                f"of {self.layout.context_tokens} tokens"
            )

    def _read(self, lane: Lane, step: Step) -> Logits | None:
        logits: Logits | None
        if len(step.tokens) == 1 and step.wants_logits:
            logits = lane.context.decode_one(LANE_SEQUENCE, lane.position, int(step.tokens[0]))
        else:
            run = Run(LANE_SEQUENCE, lane.position, step.tokens, step.wants_logits)
            logits = lane.context.decode([run])[0]
        lane.position += len(step.tokens)
        if self.layout.window_tokens:
            lane.window_start = max(lane.window_start, lane.position - lane.context.window_cells)
        return logits

    def position(self, seq: SeqId) -> int:
        return self._open[seq].position

    def window_start(self, seq: SeqId) -> int:
        return self._open[seq].window_start

    def rows(self, seq: SeqId, start: int, stop: int) -> RowBytes:
        lane = self._open[seq]
        if not lane.window_start <= start <= stop <= lane.position:
            raise EngineError(
                f"rows {start}..{stop} are not there: the sequence holds {lane.window_start}..{lane.position}"
            )
        return lane.transfer.rows_out(LANE_SEQUENCE, start, stop)

    def checkpoint(self, seq: SeqId) -> bytes:
        lane = self._open[seq]
        return lane.transfer.checkpoint_out(LANE_SEQUENCE, lane.position)

    def restore(self, rows: Sequence[RowBytes], checkpoint: bytes | None, position: int) -> SeqId:
        seq = self.open()
        lane = self._open[seq]
        with closed_on_failure(self, seq):
            if position:
                lane.transfer.rows_in(LANE_SEQUENCE, rows, position)
                lane.transfer.partial_in(LANE_SEQUENCE, position, WindowRows(tuple(rows), 0), checkpoint)
            lane.stands(position, self.layout.window_tokens)
        return seq

    def cut(self, seq: SeqId, position: int, window_rows: RowBytes | None, checkpoint: bytes | None) -> None:
        lane = self._open[seq]
        if not 0 <= position <= lane.position:
            raise EngineError(f"cannot cut at {position} a sequence that stands at {lane.position}")
        if position == lane.position:
            return
        with closed_on_failure(self, seq):
            if position == 0:
                lane.empty()
                return
            if self._cuts_in_place(lane, position):
                lane.context.remove(LANE_SEQUENCE, position)
                lane.position = position
                return
            window = window_before(self, seq, position, window_rows)
            lane.transfer.partial_in(LANE_SEQUENCE, position, window, checkpoint)
            lane.stands(position, self.layout.window_tokens)

    def _cuts_in_place(self, lane: Lane, position: int) -> bool:
        """Whether a windowed lane needs no more than tokens taken out to be as in a cold run."""
        window = self.layout.window_tokens
        if not window or self.layout.recurrent or lane.window_start > max(0, position - window):
            return False
        lowest = lane.context.lowest_position(LANE_SEQUENCE)
        return cut_leaves_places(position, lowest, lane.context.window_cells)

    def free(self) -> None:
        for lane in self._made:
            lane.context.free()
        self._made.clear()
        self._idle.clear()
        self._open.clear()
