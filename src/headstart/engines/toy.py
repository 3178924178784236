"""ToyEngine: the Engine port over the numpy model of `toy_model`, exact and instant, for tests.

It keeps real rows and real recurrent state and computes with whatever rows it is given: a cache
that hands it wrong ones gets other logits. Windowed rows are dropped after every forward, so a
row that was not copied out in time is really gone.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence

import numpy as np

from headstart.engines.base import EngineFacts, Logits, SeqId, Step
from headstart.engines.checks import check_rows, check_steps
from headstart.engines.toy_model import (
    ROW_BYTES,
    STATE_FLOATS,
    Floats,
    LayerKind,
    ToyState,
    draw_weights,
    drop_old_rows,
    empty_state,
    next_token_logits,
    read_token,
)
from headstart.engines.toy_vocabulary import CHAT_TEMPLATE, SMALLEST_VOCABULARY, toy_tokenize, toy_vocabulary
from headstart.errors import EngineError, EngineFull
from headstart.prefix.block import Plane, RowBytes, StateLayout
from headstart.prefix.tokens import TokenRun


class ToyEngine:
    """A small model with room for `max_sequences` sequences of `context_tokens` each.

    `layers` may be any order of "full", "window" and "recurrent". `cells`: how many rows all
    sequences together may hold (default: enough for all); rows shared by forks count once.
    `step_delay_s`: how long each forward sleeps first, so that tests can act while it runs.
    Raises ValueError where the options make no model.
    """

    def __init__(
        self,
        layers: Sequence[LayerKind] = ("full", "window", "recurrent"),
        *,
        window: int = 24,
        vocab_size: int = SMALLEST_VOCABULARY,
        context_tokens: int = 4096,
        max_sequences: int = 4,
        max_step_tokens: int = 256,
        shares_rows: bool = False,
        batches_sequences: bool | None = None,
        cells: int | None = None,
        seed: int = 0,
        step_delay_s: float = 0.0,
        adds_bos: bool = False,
        name: str = "toy",
    ) -> None:
        if not layers or not set(layers) <= {"full", "window", "recurrent"}:
            raise ValueError(f"layers are full, window or recurrent, at least one: not {tuple(layers)}")
        if min(window, context_tokens, max_sequences, max_step_tokens) < 1:
            raise ValueError("window, context_tokens, max_sequences and max_step_tokens are at least 1")
        self._weights = draw_weights(layers, vocab_size=vocab_size, context_tokens=context_tokens, seed=seed)
        self._window = window if "window" in layers else 0
        self.layout = _layout(layers, window, context_tokens, vocab_size)
        self.vocabulary = toy_vocabulary(vocab_size, adds_bos=adds_bos)
        self.max_sequences = max_sequences
        self.max_step_tokens = min(max_step_tokens, self._window or max_step_tokens)
        self.shares_rows = shares_rows
        self.batches_sequences = shares_rows if batches_sequences is None else batches_sequences
        self.step_delay_s = step_delay_s
        self.forward_calls = 0
        self.tokens_read = 0
        """Tokens whose forward pass was computed, over all sequences: what a cache should save."""
        self.facts = self._facts(tuple(layers), name)
        self._cells_most = max_sequences * context_tokens if cells is None else cells
        self._cell_users: Counter[int] = Counter()
        self._next_cell = 0
        self._next_seq = 0
        self._states: dict[SeqId, ToyState] = {}
        self._cells: dict[SeqId, list[int]] = {}

    def tokenize(self, text: str, *, special: bool, add_bos: bool) -> TokenRun:
        """One token a byte; see `toy_tokenize`."""
        return toy_tokenize(self.vocabulary, text, special=special, add_bos=add_bos)

    def open(self) -> SeqId:
        """A new empty sequence. Raises EngineFull when `max_sequences` are open."""
        if len(self._states) >= self.max_sequences:
            raise EngineFull(f"all {self.max_sequences} sequences are open; close one first")
        seq = SeqId(self._next_seq)
        self._next_seq += 1
        self._states[seq] = empty_state(self._weights)
        self._cells[seq] = []
        return seq

    def fork(
        self, seq: SeqId, position: int, window_rows: RowBytes | None, checkpoint: bytes | None
    ) -> SeqId:
        """A new sequence at `position` of `seq`; see the port. Raises EngineError without `shares_rows`."""
        if not self.shares_rows:
            raise EngineError("this engine does not share rows; restore from copied rows instead of forking")
        source = self._state(seq)
        self._check_target(source, position, window_rows, checkpoint)
        fork = self.open()
        state = self._states[fork]
        for ours, theirs in zip(state.keys + state.values, source.keys + source.values, strict=True):
            ours[: source.position] = theirs[: source.position]
        for ours, theirs in zip(state.recurrent, source.recurrent, strict=True):
            ours[:] = theirs
        state.position, state.window_start = source.position, source.window_start
        self._cells[fork] = list(self._cells[seq])
        self._cell_users.update(self._cells[fork])
        self._take_back(fork, position, window_rows, checkpoint)
        return fork

    def cut(self, seq: SeqId, position: int, window_rows: RowBytes | None, checkpoint: bytes | None) -> None:
        """Takes `seq` back to `position`; see the port. Raises EngineError, with `seq` unchanged."""
        self._check_target(self._state(seq), position, window_rows, checkpoint)
        self._take_back(seq, position, window_rows, checkpoint)

    def forward(self, steps: Sequence[Step]) -> list[Logits | None]:
        """Reads every step's tokens, one by one. Raises EngineFull or EngineError before any change."""
        self._check_steps(steps)
        if self.step_delay_s > 0:
            time.sleep(self.step_delay_s)
        self.forward_calls += 1
        answers: list[Logits | None] = []
        for step in steps:
            state = self._states[step.seq]
            self._take_cells(step.seq, len(step.tokens))
            outs = [read_token(self._weights, state, int(token), self._window) for token in step.tokens]
            self.tokens_read += len(step.tokens)
            drop_old_rows(self._weights, state, self._window)
            asked = outs[len(outs) - step.wants_logits :]
            scores = [next_token_logits(self._weights, out) for out in asked]
            answers.append(np.stack(scores) if len(scores) > 1 else scores[0] if scores else None)
        return answers

    def is_open(self, seq: SeqId) -> bool:
        return seq in self._states

    def position(self, seq: SeqId) -> int:
        """How many tokens `seq` has read."""
        return self._state(seq).position

    def window_start(self, seq: SeqId) -> int:
        """Lowest token whose windowed rows are still there; 0 without windowed layers."""
        return self._state(seq).window_start

    def rows(self, seq: SeqId, start: int, stop: int) -> RowBytes:
        """Copies out rows start..stop, read-only. Raises EngineError where they are not there."""
        state = self._state(seq)
        if not state.window_start <= start <= stop <= state.position:
            raise EngineError(
                f"rows {start}..{stop} asked of a sequence that holds {state.window_start}..{state.position}"
            )
        planes = []
        for keys, values in zip(state.keys, state.values, strict=True):
            for tensor in (keys, values):
                plane = tensor[start:stop].copy().view(np.uint8)
                plane.flags.writeable = False
                planes.append(plane)
        return RowBytes(tuple(planes))

    def checkpoint(self, seq: SeqId) -> bytes:
        """The recurrent state at the present position. Raises EngineError without recurrent layers."""
        state = self._state(seq)
        if not self.layout.recurrent:
            raise EngineError("this model has no recurrent layers, so there is no checkpoint to take")
        return b"".join(array.tobytes() for array in state.recurrent)

    def restore(self, rows: Sequence[RowBytes], checkpoint: bytes | None, position: int) -> SeqId:
        """A new sequence at `position` from rows 0..position; see the port."""
        if not 0 <= position <= self.layout.context_tokens:
            raise EngineError(
                f"cannot restore {position} tokens: the context holds {self.layout.context_tokens}"
            )
        held = sum(len(part) for part in rows)
        if self.layout.planes and held != position:
            raise EngineError(f"restoring at {position} needs {position} rows, not {held}")
        for part in rows:
            check_rows(part, self.layout, len(part))
        self._check_checkpoint(checkpoint, needed=position > 0)
        self._check_room(position)
        seq = self.open()
        state = self._states[seq]
        first = max(0, position - self._window) if self._window else 0
        start = 0
        for part in rows:
            self._put_rows(state, part, start, full=True, window_from=first)
            start += len(part)
        self._put_checkpoint(state, checkpoint)
        state.position, state.window_start = position, first
        self._take_cells(seq, position)
        return seq

    def close(self, seq: SeqId) -> None:
        """Frees what `seq` holds."""
        self._state(seq)
        self._give_cells(seq, 0)
        del self._states[seq], self._cells[seq]

    def shutdown(self) -> None:
        """Frees everything; no call may follow."""
        self._states.clear()
        self._cells.clear()
        self._cell_users.clear()

    def _state(self, seq: SeqId) -> ToyState:
        state = self._states.get(seq)
        if state is None:
            raise EngineError(f"sequence {seq} is not open")
        return state

    def _check_steps(self, steps: Sequence[Step]) -> None:
        check_steps(steps, self.position, self.layout, self.max_step_tokens)
        self._check_room(sum(len(step.tokens) for step in steps))

    def _check_room(self, count: int) -> None:
        if len(self._cell_users) + count > self._cells_most:
            raise EngineFull(
                f"{count} more rows asked for; {len(self._cell_users)} of {self._cells_most} are in use"
            )

    def _take_cells(self, seq: SeqId, count: int) -> None:
        new = range(self._next_cell, self._next_cell + count)
        self._next_cell += count
        self._cells[seq].extend(new)
        self._cell_users.update(new)

    def _give_cells(self, seq: SeqId, keep: int) -> None:
        cells = self._cells[seq]
        for cell in cells[keep:]:
            self._cell_users[cell] -= 1
            if not self._cell_users[cell]:
                del self._cell_users[cell]
        del cells[keep:]

    def _check_target(
        self, state: ToyState, position: int, window_rows: RowBytes | None, checkpoint: bytes | None
    ) -> None:
        if not 0 <= position <= state.position:
            raise EngineError(f"cannot go back to {position}: the sequence stands at {state.position}")
        first = max(0, position - self._window)
        if window_rows is not None:
            check_rows(window_rows, self.layout, position - first)
        elif self._window and position > 0 and state.window_start > first:
            raise EngineError(
                f"position {position} needs window rows {first}..{position}; "
                f"the sequence holds them from {state.window_start} on"
            )
        self._check_checkpoint(checkpoint, needed=position not in (0, state.position))

    def _check_checkpoint(self, checkpoint: bytes | None, *, needed: bool) -> None:
        if checkpoint is None:
            if needed and self.layout.recurrent:
                raise EngineError("recurrent layers cannot go there without a checkpoint")
        elif len(checkpoint) != self.layout.checkpoint_bytes:
            raise EngineError(f"a checkpoint is {self.layout.checkpoint_bytes} bytes, not {len(checkpoint)}")

    def _take_back(
        self, seq: SeqId, position: int, window_rows: RowBytes | None, checkpoint: bytes | None
    ) -> None:
        state = self._states[seq]
        first = max(0, position - self._window) if self._window else 0
        if window_rows is not None:
            self._put_rows(state, window_rows, first, full=False, window_from=first)
            state.window_start = min(state.window_start, first)
        if checkpoint is not None:
            self._put_checkpoint(state, checkpoint)
        elif position == 0:
            for array in state.recurrent:
                array[:] = 0
        state.position = position
        state.window_start = min(state.window_start, position)
        for tensor in state.keys + state.values:
            tensor[position:] = np.nan
        self._give_cells(seq, position)
        drop_old_rows(self._weights, state, self._window)

    def _put_rows(self, state: ToyState, rows: RowBytes, start: int, *, full: bool, window_from: int) -> None:
        """Writes `rows` at token `start` on: windowed planes from `window_from`, others where `full`."""
        for index, plane in enumerate(self.layout.planes):
            tensor = (state.values if index % 2 else state.keys)[index // 2]
            floats: Floats = np.ascontiguousarray(rows.planes[index]).view(np.float32)
            skip = max(0, window_from - start) if plane.window_tokens else 0
            if (full or plane.window_tokens) and skip < len(floats):
                tensor[start + skip : start + len(floats)] = floats[skip:]

    def _put_checkpoint(self, state: ToyState, checkpoint: bytes | None) -> None:
        if checkpoint is None or not state.recurrent:
            return
        floats = np.frombuffer(checkpoint, dtype=np.float32).reshape(len(state.recurrent), STATE_FLOATS)
        for array, saved in zip(state.recurrent, floats, strict=True):
            array[:] = saved

    def _facts(self, layers: tuple[LayerKind, ...], name: str) -> EngineFacts:
        return EngineFacts(
            engine="toy",
            model_name=name,
            architecture="toy:" + "+".join(layers),
            parameters=self._weights.parameters,
            state_proved=True,
            exact_repeat=True,
            restore_equals_cold=True,
            parts={
                "engine": "toy",
                "state_version": "1",
                "weights": self._weights.digest(),
                "layers": "+".join(layers),
                "window": str(self._window),
                "context_tokens": str(self.layout.context_tokens),
            },
            chat_template=CHAT_TEMPLATE,
            step_scores=self.max_step_tokens,
        )


def _layout(layers: Sequence[LayerKind], window: int, context_tokens: int, vocab_size: int) -> StateLayout:
    planes = tuple(
        Plane(f"{tensor}.{index}", ROW_BYTES, window if kind == "window" else 0)
        for index, kind in enumerate(layers)
        if kind != "recurrent"
        for tensor in ("k", "v")
    )
    return StateLayout(
        planes=planes,
        checkpoint_bytes=sum(STATE_FLOATS * 4 for kind in layers if kind == "recurrent"),
        context_tokens=context_tokens,
        vocab_size=vocab_size,
    )
