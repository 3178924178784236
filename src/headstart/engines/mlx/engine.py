"""MlxEngine: the Engine port over a model of mlx-lm.

Each sequence has the caches that the model makes, its own classes in place of some (see `window`).
Prompts are read one sequence after the other; single tokens of several in one pass, where `together`
allows it. All calls come from one thread, and what they answer is evaluated and copied: no array of MLX
leaves it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
from mlx.utils import tree_flatten
from mlx_lm.models.cache import make_prompt_cache

from headstart.engines.base import Logits, SeqId, Step
from headstart.engines.checks import check_rows, check_steps
from headstart.engines.mlx.ahead import Ahead, queue, read_ahead
from headstart.engines.mlx.facts import facts_of
from headstart.engines.mlx.kinds import converted, leaves
from headstart.engines.mlx.memory import (
    TRIAL_TOKENS,
    Needs,
    at_least,
    chunk_now,
    limited_context,
    needs_of,
    peak_bytes,
    set_limits,
    usable_bytes,
)
from headstart.engines.mlx.options import MlxOptions
from headstart.engines.mlx.probe import MOST_TOGETHER, prove, prove_together
from headstart.engines.mlx.source import Loaded, load_model_directory
from headstart.engines.mlx.states import RowStates, SnapshotStates, states_of
from headstart.engines.mlx.together import read_together
from headstart.errors import ConfigError, EngineError, EngineFull
from headstart.prefix.block import RowBytes, StateLayout
from headstart.prefix.tokens import TokenRun

__all__ = ["MlxEngine", "load"]


@dataclass
class _Live:
    """A sequence. `held_from`: the first token whose windowed rows were read or given. `ahead`: a token
    behind `position` that `caches` have read too."""

    caches: list[Any]
    position: int = 0
    held_from: int = 0
    ahead: Ahead | None = None

    def settle(self) -> None:
        """Takes back what was read ahead."""
        if self.ahead is not None:
            self.ahead.taken_back(self.caches)
            self.ahead = None


class MlxEngine:
    """`loaded` with room for `options.max_sequences` sequences. Raises ModelError, ConfigError."""

    shares_rows = False
    batches_sequences: bool
    joins: bool
    """Whether `forward` reads single tokens of several sequences together. The probe sets it."""

    def __init__(self, loaded: Loaded, options: MlxOptions) -> None:
        self._loaded = loaded
        self._options = options
        self._model = loaded.model
        self.vocabulary = loaded.vocabulary
        self.max_sequences = options.max_sequences
        self._live: dict[SeqId, _Live] = {}
        self._next = 0
        self.states, notes = states_of(self._read_some, self._new_caches)
        self._needs = self._measured_needs()
        context, self._largest_step, note = limited_context(options, loaded.config, self._needs)
        self._limit_bytes = usable_bytes(options)
        self.layout = StateLayout(
            self.states.planes, self.states.checkpoint_bytes, context, len(loaded.vocabulary.pieces)
        )
        self.joins = False
        proof = prove(self)
        if not proof.state_proved and isinstance(self.states, RowStates):
            notes += (
                *proof.notes,
                "rows could not be proved: whole states are kept instead, at message ends",
            )
            self.states = SnapshotStates(self._new_caches, self.states.sample_bytes)
            self.layout = replace(self.layout, planes=(), checkpoint_bytes=self.states.checkpoint_bytes)
            proof = replace(proof, notes=())
        joint = prove_together(self, options.together)
        self.joins, self.batches_sequences = joint.joins, joint.mixes
        own = (note for note in (note, joint.note) if note)
        notes += (*proof.notes, *own)
        most = self._largest_step
        self.facts = facts_of(loaded, options, proof, states=self.states, most=most, notes=notes)

    @property
    def max_step_tokens(self) -> int:
        """Fewer than at the start while memory is short."""
        longest = max((live.position for live in self._live.values()), default=0)
        free = self._limit_bytes - mx.get_active_memory()
        return chunk_now(self._needs, longest, self._largest_step, free)

    def _measured_needs(self) -> Needs:
        """What the model's shape says, or more where a trial takes more."""
        needs = needs_of(
            self._loaded.config,
            weights=self._weights_bytes(),
            row=self.states.row_bytes,
            fixed=self.states.checkpoint_bytes,
            sequences=self._options.max_sequences,
        )
        caches = self._new_caches()
        self._read_some(caches, TRIAL_TOKENS)
        works = [peak_bytes(lambda: self._read_some(caches, TRIAL_TOKENS)) for _ in range(2)]
        return at_least(needs, *works)

    def _new_caches(self) -> list[Any]:
        return converted(make_prompt_cache(self._model), self._options.kv_bits, self._options.kv_group)

    def _read_some(self, caches: Sequence[Any], count: int) -> None:
        self._model(mx.zeros((1, count), mx.int32), cache=caches)
        mx.eval([leaf.state for leaf in leaves(caches)])

    def _weights_bytes(self) -> int:
        arrays: list[tuple[str, mx.array]] = tree_flatten(self._model.parameters())  # type: ignore[assignment]
        return sum(array.nbytes for _, array in arrays)

    # The port

    def tokenize(self, text: str, *, special: bool, add_bos: bool) -> TokenRun:
        return self._loaded.tokenize(text, special=special, add_bos=add_bos)

    def open(self) -> SeqId:
        """A new empty sequence. Raises EngineFull when `max_sequences` are open."""
        return self._add(_Live(self._new_caches()))

    def _add(self, live: _Live) -> SeqId:
        if len(self._live) >= self.max_sequences:
            raise EngineFull(f"all {self.max_sequences} sequences are open; close one first")
        seq = SeqId(self._next)
        self._next += 1
        self._live[seq] = live
        return seq

    def fork(
        self, seq: SeqId, position: int, window_rows: RowBytes | None, checkpoint: bytes | None
    ) -> SeqId:
        raise EngineError("this engine does not share rows; restore from copied rows instead of forking")

    def cut(self, seq: SeqId, position: int, window_rows: RowBytes | None, checkpoint: bytes | None) -> None:
        """Takes `seq` back to `position`; see the port. Raises EngineError, with `seq` unchanged."""
        live = self._settled(seq)
        if not 0 <= position <= live.position:
            raise EngineError(f"cannot go back to {position}: the sequence stands at {live.position}")
        if position == 0:
            self._live[seq] = _Live(self._new_caches())
            return
        window = self.layout.window_tokens
        first = max(0, position - window)
        if window_rows is not None:
            check_rows(window_rows, self.layout, position - first)
        elif window and self.window_start(seq) > first:
            raise EngineError(
                f"position {position} needs window rows {first}..{position}; "
                f"the sequence holds them from {self.window_start(seq)} on"
            )
        self._check_checkpoint(checkpoint, needed=position != live.position)
        try:
            caches = self.states.cut(live.caches, live.position, position, window_rows, checkpoint)
        except (RuntimeError, ValueError) as error:
            self.close(seq)
            raise EngineError(f"MLX failed while a sequence was cut: {error}") from error
        held = first if window_rows is not None else live.held_from
        self._live[seq] = _Live(caches, position, held)

    def forward(self, steps: Sequence[Step]) -> list[Logits | None]:
        """Reads every step's tokens. Raises EngineFull or EngineError before any change; where MLX itself
        fails, EngineError with the sequence closed."""
        check_steps(steps, self.position, self.layout, self._largest_step)
        answers = self._read_together([step for step in steps if self._can_join(step)])
        for step in steps:
            if step.seq in answers:
                continue
            read = self._decode if len(step.tokens) == 1 == step.wants_logits else self._read
            try:
                answers[step.seq] = read(self._live[step.seq], step)
            except (RuntimeError, ValueError) as error:
                self.close(step.seq)  # some layers may have gone on
                raise EngineError(f"MLX failed while it read {len(step.tokens)} tokens: {error}") from error
        return [answers[step.seq] for step in steps]

    def _can_join(self, step: Step) -> bool:
        return self.joins and len(step.tokens) == 1 == step.wants_logits and self.position(step.seq) > 0

    def _read_together(self, steps: Sequence[Step]) -> dict[SeqId, Logits | None]:
        """The scores of steps of one token each; of none where there is no second."""
        answers: dict[SeqId, Logits | None] = {}
        for start in range(0, len(steps) - 1, MOST_TOGETHER):
            part = steps[start : start + MOST_TOGETHER]
            lives = [self._settled(step.seq) for step in part]
            tokens = mx.array(np.concatenate([step.tokens for step in part]).astype(np.int32))
            try:
                scores = read_together(self._model, [live.caches for live in lives], tokens)
                mx.eval(scores)
            except (RuntimeError, ValueError, TypeError, AttributeError) as error:
                for step in part:
                    self.close(step.seq)
                raise EngineError(f"MLX failed while it read {len(part)} tokens together: {error}") from error
            for live, step, row in zip(lives, part, np.array(scores, dtype=np.float32), strict=True):
                live.position += 1
                answers[step.seq] = row.copy()
        return answers

    def _read(self, live: _Live, step: Step) -> Logits | None:
        """All tokens but those whose scores are asked for what they leave behind; then these alone, so that
        the output head is computed for no others."""
        live.settle()
        tokens = mx.array(step.tokens.astype(np.int32))[None]
        count, wanted = len(step.tokens), int(step.wants_logits)
        head = count - wanted
        if head:
            self._model(tokens[:, :head], cache=live.caches)
            mx.eval([leaf.state for leaf in leaves(live.caches)])
        answer = None
        if wanted:
            scores = self._model(tokens[:, head:], cache=live.caches)[0].astype(mx.float32)
            mx.eval(scores, [leaf.state for leaf in leaves(live.caches)])
            answer = np.array(scores[-1] if wanted == 1 else scores, dtype=np.float32, copy=True)
        live.position += count
        return answer

    def _decode(self, live: _Live, step: Step) -> Logits:
        """One token and its scores; where the likeliest one will follow, that is begun before they are
        waited for."""
        ahead, token = live.ahead, int(step.tokens[0])
        if ahead is not None and ahead.guess.item() == token:
            queued, live.ahead = ahead.queued, None
        else:
            live.settle()
            queued = queue(self._model, live.caches, mx.array([[token]], mx.int32))
        live.position += 1
        if step.greedy and self._reads_ahead() and live.position < self.layout.context_tokens:
            first = self.states.first(live.caches)
            live.ahead = read_ahead(self._model, live.caches, queued, first)
        return np.array(queued.scores, dtype=np.float32, copy=True)

    def _reads_ahead(self) -> bool:
        """What a cache of an unknown kind holds, nobody could put back."""
        return self._options.read_ahead and isinstance(self.states, RowStates)

    def is_open(self, seq: SeqId) -> bool:
        return seq in self._live

    def position(self, seq: SeqId) -> int:
        return self._get(seq).position

    def window_start(self, seq: SeqId) -> int:
        """Lowest token whose windowed rows are still there; 0 without windowed layers."""
        live = self._get(seq)
        if not self.layout.window_tokens:
            return 0
        if live.ahead is not None and live.ahead.first != self.states.first(live.caches):
            live.settle()
        return min(live.position, max(live.held_from, self.states.first(live.caches)))

    def rows(self, seq: SeqId, start: int, stop: int) -> RowBytes:
        """Copies out rows start..stop. Raises EngineError where they are not there."""
        live = self._get(seq)
        if not self.window_start(seq) <= start <= stop <= live.position:
            raise EngineError(
                f"rows {start}..{stop} asked of a sequence that holds "
                f"{self.window_start(seq)}..{live.position}"
            )
        return self.states.rows(live.caches, start, stop)

    def checkpoint(self, seq: SeqId) -> bytes:
        """The recurrent state at the present position. Raises EngineError without recurrent layers."""
        live = self._settled(seq)
        if not self.layout.recurrent:
            raise EngineError("this model has no recurrent layers, so there is no checkpoint to take")
        return self.states.checkpoint(live.caches, live.position)

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
        seq = self.open()
        if position:
            try:
                caches = self.states.build(rows, checkpoint, position)
            except EngineError:
                self.close(seq)
                raise
            except (RuntimeError, ValueError) as error:
                self.close(seq)
                raise EngineError(f"MLX failed while state was put back: {error}") from error
            first = max(0, position - self.layout.window_tokens) if self.layout.window_tokens else 0
            self._live[seq] = _Live(caches, position, first)
        return seq

    def close(self, seq: SeqId) -> None:
        self._get(seq)
        del self._live[seq]

    def shutdown(self) -> None:
        self._live.clear()
        self._model = None
        mx.clear_cache()

    # Checks

    def _get(self, seq: SeqId) -> _Live:
        live = self._live.get(seq)
        if live is None:
            raise EngineError(f"sequence {seq} is not open")
        return live

    def _settled(self, seq: SeqId) -> _Live:
        live = self._get(seq)
        live.settle()
        return live

    def _check_checkpoint(self, checkpoint: bytes | None, *, needed: bool) -> None:
        if checkpoint is None:
            if needed and self.layout.recurrent:
                raise EngineError("recurrent layers cannot go there without a checkpoint")
        elif self.layout.planes and len(checkpoint) != self.layout.checkpoint_bytes:
            raise EngineError(f"a checkpoint is {self.layout.checkpoint_bytes} bytes, not {len(checkpoint)}")


def load(
    model: str | Path,
    options: MlxOptions | None = None,
    *,
    progress: Callable[[int, int], None] | None = None,
    prepare: Callable[[Any], None] | None = None,
) -> MlxEngine:
    """Loads and probes the MLX model at `model`: a folder, owner/name in the hub cache, or hf:owner/name.

    `progress` gets bytes read and in all while the weights' digest is taken; `prepare` see
    `source.load_model_directory`. Raises ModelError, ConfigError.
    """
    options = options or MlxOptions()
    set_limits(options)
    loaded = load_model_directory(model, options, progress, prepare)
    try:
        return MlxEngine(loaded, options)
    except ValueError as error:
        if options.kv_bits is not None:
            raise ConfigError(
                f"--kv-type: {loaded.architecture} cannot keep quantised keys: {error}"
            ) from error
        raise
