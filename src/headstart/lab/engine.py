"""A toy engine that recalls: the state keeping of `ToyEngine`, a model that answers from its own state.

The model continues a text the way an induction head does: it looks for the last place in its own rows
where the present suffix stood before, and says what followed there. So `EARLY=` at the end of a prompt
is answered with the value planted in it, as long as the rows of that value are really its rows. What it
says beside that, and every log-probability, is a sum over all of its state: a row, a checkpoint or a
window that is not the prompt's own gives other numbers.

Reading takes time by sleeping, not by computing: a server in this process leaves the processor to
others, and the clock tells warm from cold on any machine.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from headstart.engines.base import Logits, Step
from headstart.engines.toy import ToyEngine
from headstart.engines.toy_model import (
    STATE_FLOATS,
    WIDTH,
    Floats,
    LayerKind,
    ToyState,
    drop_old_rows,
    next_token_logits,
)
from headstart.engines.toy_vocabulary import IM_END, IM_START, SMALLEST_VOCABULARY
from headstart.prefix.tokens import TokenRun

Ids = npt.NDArray[np.int64]

LEAST_MATCH = 5
"""Shortest suffix that is looked for: the shortest marker's name with its `=`."""
MOST_MATCH = 24
_SURE = 4.0
_TURNED = np.roll(np.arange(STATE_FLOATS), 1)
_OFTEN = [ord(letter) for letter in "aeorst"]
_TURNS = 24.0
"""How much a difference in the state is enlarged before it reaches the scores."""
_REPLY_HEADER = (IM_START, *b"assistant\n")
_TURN_END = (IM_END, *b"\n")


class RecallEngine(ToyEngine):
    """`ToyEngine` with another model in it. `token_s`: seconds to read a token; `step_s`: of a forward
    beside that. `window` is at least as long as the prefill chunks that are to be read at once."""

    def __init__(
        self,
        layers: Sequence[LayerKind] = ("full",),
        *,
        context_tokens: int = 4096,
        max_sequences: int = 4,
        window: int = 128,
        seed: int = 0,
        token_s: float = 0.0,
        step_s: float = 0.0,
        name: str = "lab",
    ) -> None:
        super().__init__(
            layers,
            window=window,
            context_tokens=context_tokens,
            max_sequences=max_sequences,
            seed=seed,
            name=name,
        )
        self.facts = replace(self.facts, step_scores=1)
        self._kinds = tuple(layers)
        self._token_s = token_s
        self._step_s = step_s
        random = np.random.default_rng(seed + 1)
        shape = (len(layers), SMALLEST_VOCABULARY, STATE_FLOATS)
        self._codes: Floats = random.standard_normal(shape).astype(np.float32)
        self._phases: Floats = random.uniform(0.3, 3.0, (len(layers), WIDTH)).astype(np.float32)

    def forward(self, steps: Sequence[Step]) -> list[Logits | None]:
        """Reads every step's tokens. Raises EngineFull or EngineError before any change."""
        self._check_steps(steps)
        self.forward_calls += 1
        answers: list[Logits | None] = []
        for step in steps:
            state = self._states[step.seq]
            self._take_cells(step.seq, len(step.tokens))
            self._read(state, step.tokens)
            self.tokens_read += len(step.tokens)
            drop_old_rows(self._weights, state, self._window)
            answers.append(self._logits(state) if step.wants_logits else None)
        time.sleep(self._step_s + self._token_s * sum(len(step.tokens) for step in steps))
        return answers

    def _read(self, state: ToyState, tokens: TokenRun) -> None:
        ids = np.asarray(tokens, dtype=np.int64)
        start, stop = state.position, state.position + len(ids)
        at = np.arange(start, stop, dtype=np.float32)[:, None]
        attention = recurrent = 0
        for layer, kind in enumerate(self._kinds):
            codes = self._codes[layer]
            if kind == "recurrent":
                memory = state.recurrent[recurrent]
                for token in ids.tolist():
                    np.sin(np.float32(1.7) * memory[_TURNED] + codes[token], out=memory)
                recurrent += 1
                continue
            keys, values = state.keys[attention], state.values[attention]
            keys[start:stop] = codes[ids, :WIDTH]
            keys[start:stop, 0] = ids
            values[start:stop] = np.sin(codes[ids, WIDTH : 2 * WIDTH] + at * self._phases[layer])
            attention += 1
        state.position = stop

    def _logits(self, state: ToyState) -> Logits:
        """Scores from the state alone, as it is, whoever put it there."""
        stop = state.position
        x = np.zeros(WIDTH, dtype=np.float32)
        attention = recurrent = 0
        for kind in self._kinds:
            if kind == "recurrent":
                x = x + state.recurrent[recurrent][:WIDTH]
                recurrent += 1
                continue
            first = max(0, stop - self._window) if kind == "window" else 0
            seen = state.values[attention][first:stop].copy()
            seen[:, 1:] += state.keys[attention][first:stop, 1:] * np.float32(0.5)
            x = x + np.add.reduce(seen, axis=0) / np.sqrt(np.float32(stop - first)) + seen[-1]
            attention += 1
        x = np.sin(np.float32(_TURNS) * np.nan_to_num(x, nan=3.0))
        logits = _readable(next_token_logits(self._weights, x))
        said = self._recalled(state)
        if said is not None:
            logits[said] = logits.max() + np.float32(_SURE)
        return logits

    def _recalled(self, state: ToyState) -> int | None:
        """What followed the last place where the present suffix stood before."""
        if "full" not in self._kinds:
            return None
        attention = [kind for kind in self._kinds if kind != "recurrent"].index("full")
        floats = np.nan_to_num(state.keys[attention][: state.position, 0])
        return recall(np.clip(np.rint(floats), 0, SMALLEST_VOCABULARY - 1).astype(np.int64))


def recall(ids: Ids) -> int | None:
    """The token after the last earlier occurrence of the longest suffix of `ids` that occurred before.

    A reply that has begun continues the text before its header, as if the header were not there.
    None where no suffix of LEAST_MATCH tokens did.
    """
    ids = _without_header(ids)
    found = np.flatnonzero(ids[:-1] == ids[-1]) if len(ids) else np.empty(0, dtype=np.int64)
    length = 1
    while len(found) and length < MOST_MATCH:
        longer = found[found >= length]
        longer = longer[ids[longer - length] == ids[len(ids) - 1 - length]]
        if not len(longer):
            break
        found, length = longer, length + 1
    if not len(found) or length < LEAST_MATCH:
        return None
    return int(ids[found[-1] + 1])


def _without_header(ids: Ids) -> Ids:
    starts = np.flatnonzero(ids == IM_START)
    if not len(starts):
        return ids
    start = int(starts[-1])
    end = start + len(_REPLY_HEADER)
    if tuple(ids[start:end].tolist()) != _REPLY_HEADER:
        return ids
    if tuple(ids[start - len(_TURN_END) : start].tolist()) == _TURN_END:
        start -= len(_TURN_END)
    return np.concatenate((ids[:start], ids[end:]))


def _readable(logits: Logits) -> Logits:
    """Nothing but printable ASCII is likely, so that a reply is as long as was asked for; a few letters
    are always the likeliest, so that two replies' alternatives can be compared."""
    shown = np.full_like(logits, -30.0)
    shown[32:127] = 0.2 * logits[32:127] - 10
    shown[_OFTEN] = 0.5 * logits[_OFTEN]
    return shown
