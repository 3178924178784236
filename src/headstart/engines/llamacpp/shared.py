"""`--batching shared`: all live sequences in one context with one pool of cells.

Forks share cells without copying, and one llama_decode reads tokens of many sequences. Cells of a
sequence lie wherever there was room, and a token is computed beside other sequences' tokens, so
bits do not repeat: results stay within the difference of two cold runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from headstart.engines.base import Logits, SeqId, Step
from headstart.engines.llamacpp.binding import Context, Run
from headstart.engines.llamacpp.live import LiveSequence, closed_on_failure, window_before
from headstart.engines.llamacpp.transfer import Transfer, WindowRows
from headstart.errors import EngineError, EngineFull
from headstart.prefix.block import RowBytes, StateLayout

__all__ = ["Shared"]


@dataclass
class _Live(LiveSequence):
    """A live sequence, by its number in llama.cpp."""

    number: int


class Shared:
    """Live sequences in one context. The context's cells are shared by all of them."""

    batches_sequences = True
    shares_rows = True

    def __init__(
        self,
        layout: StateLayout,
        max_sequences: int,
        max_step_tokens: int,
        context: Context,
        transfer: Transfer,
    ) -> None:
        self.layout = layout
        self.max_sequences = max_sequences
        self.max_step_tokens = max_step_tokens
        self._context = context
        self._transfer = transfer
        self._open: dict[SeqId, _Live] = {}
        self._numbers = list(range(max_sequences - 1, -1, -1))
        self._next_id = 0

    def open(self) -> SeqId:
        if not self._numbers:
            raise EngineFull(f"all {self.max_sequences} live sequences are taken")
        seq = SeqId(self._next_id)
        self._next_id += 1
        self._open[seq] = _Live(self._numbers.pop())
        return seq

    @property
    def window_cells(self) -> int:
        """Cells of the window's ring, 0 where there is none."""
        return self._context.window_cells

    def is_open(self, seq: SeqId) -> bool:
        """Whether `seq` is live."""
        return seq in self._open

    def close(self, seq: SeqId) -> None:
        live = self._open.pop(seq)
        self._context.remove(live.number)
        self._numbers.append(live.number)

    def forward(self, steps: Sequence[Step]) -> list[Logits | None]:
        """One llama_decode for all steps, so that either all are read or none."""
        if len({step.seq for step in steps}) < len(steps):
            raise EngineError("a sequence has two steps in one call")
        runs = [self._run(step) for step in steps]
        if not runs:
            return []
        logits = self._context.decode(runs)
        for step in steps:
            self._open[step.seq].position += len(step.tokens)
        return logits

    def _run(self, step: Step) -> Run:
        live, count = self._open[step.seq], len(step.tokens)
        if not 1 <= count <= self.max_step_tokens:
            raise EngineError(f"a step has {count} tokens, expected 1 to {self.max_step_tokens}")
        if live.position + count > self.layout.context_tokens:
            raise EngineFull(
                f"{count} more tokens at position {live.position} pass the end of the context "
                f"of {self.layout.context_tokens} tokens"
            )
        return Run(live.number, live.position, step.tokens, step.wants_logits)

    def position(self, seq: SeqId) -> int:
        return self._open[seq].position

    def window_start(self, seq: SeqId) -> int:
        """llama.cpp's lowest window position where it says it (not where recurrent layers stand
        before it), but the rows of the last window are always there."""
        live = self._open[seq]
        if not self.layout.window_tokens:
            return 0
        sure = max(0, live.position - self.layout.window_tokens)
        if self.layout.recurrent:
            return sure
        lowest = self._context.lowest_position(live.number)
        return live.position if lowest < 0 else max(live.window_start, min(lowest, sure))

    def rows(self, seq: SeqId, start: int, stop: int) -> RowBytes:
        live, low = self._open[seq], self.window_start(seq)
        if not low <= start <= stop <= live.position:
            raise EngineError(
                f"rows {start}..{stop} are not there: the sequence holds {low}..{live.position}"
            )
        return self._transfer.rows_out(live.number, start, stop)

    def checkpoint(self, seq: SeqId) -> bytes:
        live = self._open[seq]
        return self._transfer.checkpoint_out(live.number, live.position)

    def restore(self, rows: Sequence[RowBytes], checkpoint: bytes | None, position: int) -> SeqId:
        seq = self.open()
        live = self._open[seq]
        with closed_on_failure(self, seq):
            if position:
                self._transfer.rows_in(live.number, rows, position)
                self._transfer.partial_in(live.number, position, WindowRows(tuple(rows), 0), checkpoint)
            live.stands(position, self.layout.window_tokens)
        return seq

    def cut(self, seq: SeqId, position: int, window_rows: RowBytes | None, checkpoint: bytes | None) -> None:
        live = self._open[seq]
        if not 0 <= position <= live.position:
            raise EngineError(f"cannot cut at {position} a sequence that stands at {live.position}")
        if position == live.position:
            return
        with closed_on_failure(self, seq):
            if position == 0:
                self._context.remove(live.number)
            elif self._window_stays(seq, position):
                self._context.remove(live.number, position)
                live.position = position
                return
            else:
                window = window_before(self, seq, position, window_rows)
                self._transfer.partial_in(live.number, position, window, checkpoint)
            live.stands(position, self.layout.window_tokens)

    def _window_stays(self, seq: SeqId, position: int) -> bool:
        """Whether the window rows before `position` are there and nothing else needs to be put back."""
        window = self.layout.window_tokens
        return (
            bool(window) and not self.layout.recurrent and self.window_start(seq) <= max(0, position - window)
        )

    def fork(
        self, seq: SeqId, position: int, window_rows: RowBytes | None, checkpoint: bytes | None
    ) -> SeqId:
        """Shares the cells of the full planes; window rows and recurrent state are copied.

        Window cells must not be shared: llama.cpp uses a masked cell again only where it belongs to
        one sequence (llama_kv_cache::find_slot), so shared ones would fill the window's ring for good.
        """
        source = self._open[seq]
        if not 0 <= position <= source.position:
            raise EngineError(f"cannot fork at {position} a sequence that stands at {source.position}")
        window = window_before(self, seq, position, window_rows) if position else None
        if checkpoint is None and self.layout.recurrent and position == source.position and position:
            checkpoint = self._transfer.checkpoint_out(source.number, position)
        fork = self.open()
        live = self._open[fork]
        with closed_on_failure(self, fork):
            if position:
                self._context.copy_sequence(source.number, live.number, 0, position)
                self._transfer.partial_in(live.number, position, window, checkpoint)
            live.stands(position, self.layout.window_tokens)
        return fork

    def free(self) -> None:
        self._context.free()
        self._open.clear()
