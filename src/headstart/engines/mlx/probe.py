"""The proof, at load, that state can be copied out, put back and gone on from.

A few tokens of the loaded model itself: one sequence is read in two chunks, and its state between them
is put into another that reads the same second chunk. *State*: it ends with the scores of the first.
*Bits*: with the same bits (exact repeat), and with those of sequences that read all tokens at once and
one at a time, and of longer ones (restore equals cold): devices compute few and many tokens in other ways.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from headstart.engines.base import Engine, Logits, SeqId, Step
from headstart.engines.mlx.options import Together
from headstart.errors import EngineError
from headstart.prefix.tokens import TokenRun

__all__ = ["MOST_TOGETHER", "Joint", "Proof", "prove", "prove_together"]

CUT, COUNT = 7, 23
LONG_CUT, LONG = 64, 160
CLOSE = 1e-3
"""Of the scale of the scores; what a wrong row changes is more than ten times as much."""
NOT_EQUAL = (
    "a restored prompt equals a cold run within rounding, not bit for bit: what this model computes depends "
    "on how many tokens it reads at once"
)
MOST_TOGETHER = 8
"""Sequences of one pass at most: as many as `prove_together` tries."""
APART = "replies to several requests are decoded one after the other: "
NOT_REPEATED = "the same work does not give the same bits twice on this device"


@dataclass(frozen=True)
class Proof:
    """What was shown; `notes` say what to expect where something did not hold."""

    state_proved: bool
    exact_repeat: bool
    restore_equals_cold: bool
    notes: tuple[str, ...] = ()


def prove(engine: Engine) -> Proof:
    """Runs the probe. An EngineError on the way is a proof that failed, with the error as its note."""
    tokens = _tokens(engine, LONG)
    opened: list[SeqId] = []
    try:
        proof = _run(engine, tokens[:COUNT], min(CUT, len(tokens) - 1), opened)
        if proof.restore_equals_cold and len(tokens) == LONG and engine.max_step_tokens >= LONG_CUT:
            return _run(engine, tokens, LONG_CUT, opened)
        return proof
    except EngineError as error:
        return Proof(False, False, False, (f"the probe failed: {error}",))
    finally:
        for seq in opened:
            if engine.is_open(seq):
                engine.close(seq)


def _run(engine: Engine, tokens: TokenRun, cut: int, opened: list[SeqId]) -> Proof:
    first = engine.open()
    opened.append(first)
    engine.forward([Step(first, tokens[:cut], wants_logits=False)])
    rows = engine.rows(first, 0, cut)
    checkpoint = engine.checkpoint(first) if engine.layout.recurrent else None
    went_on = _read(engine, first, tokens[cut:])
    engine.close(first)
    second = engine.restore([rows] if engine.layout.planes else [], checkpoint, cut)
    opened.append(second)
    resumed = _read(engine, second, tokens[cut:])
    engine.close(second)
    scale = float(np.abs(went_on).max()) or 1.0
    if not np.isfinite(resumed).all() or float(np.abs(resumed - went_on).max()) > CLOSE * scale:
        return Proof(False, False, False, ("a restored sequence goes on with other scores",))
    if resumed.tobytes() != went_on.tobytes():
        return Proof(True, False, False, (NOT_REPEATED,))
    sizes = (engine.max_step_tokens, 1) if len(tokens) <= COUNT else (engine.max_step_tokens,)
    if any(_cold(engine, tokens, most, opened).tobytes() != resumed.tobytes() for most in sizes):
        return Proof(True, True, False, (NOT_EQUAL,))
    return Proof(True, True, True)


def _cold(engine: Engine, tokens: TokenRun, most: int, opened: list[SeqId]) -> Logits:
    """Scores after `tokens`, read `most` at a time."""
    seq = engine.open()
    opened.append(seq)
    for token in range(0, len(tokens) - most, most):
        engine.forward([Step(seq, tokens[token : token + most], wants_logits=False)])
    answer = _read(engine, seq, tokens[engine.position(seq) :])
    engine.close(seq)
    return answer


def _read(engine: Engine, seq: SeqId, tokens: TokenRun) -> Logits:
    answer = None
    for start in range(0, len(tokens), engine.max_step_tokens):
        part = tokens[start : start + engine.max_step_tokens]
        (answer,) = engine.forward([Step(seq, part, wants_logits=start + len(part) == len(tokens))])
    assert answer is not None
    return answer


def _tokens(engine: Engine, most: int) -> TokenRun:
    """Up to `most` ordinary tokens, spread over the vocabulary."""
    count = min(most, engine.layout.context_tokens)
    ordinary = [token for token in range(engine.layout.vocab_size) if token not in engine.vocabulary.control]
    step = max(1, len(ordinary) // count)
    return np.array([ordinary[(n * step + n) % len(ordinary)] for n in range(count)], np.int32)


class Joining(Engine, Protocol):
    """An engine that can be told to read single tokens of several sequences together."""

    joins: bool


@dataclass(frozen=True)
class Joint:
    """Whether sequences are read together, and whether that `mixes` their last bits."""

    joins: bool
    mixes: bool
    note: str | None = None


def prove_together(engine: Joining, wanted: Together) -> Joint:
    """Tries every number of sequences up to MOST_TOGETHER against each of them alone."""
    most = min(MOST_TOGETHER, engine.max_sequences)
    if wanted is Together.NEVER or most < 2:
        return Joint(False, False)
    tokens = _tokens(engine, COUNT)
    try:
        alone = [_replies([n], engine, tokens, most)[0] for n in range(most)]
        engine.joins = True
        joint = _replies(list(range(most)), engine, tokens, most)
    except EngineError as error:
        return Joint(False, False, f"{APART}this model's own code takes no several ({error})")
    finally:
        engine.joins = False
    pairs = [(a, b) for one, other in zip(alone, joint, strict=True) for a, b in zip(one, other, strict=True)]
    if all(a.tobytes() == b.tobytes() for a, b in pairs):
        return Joint(True, False)
    if not all(float(np.abs(a - b).max()) <= CLOSE * (float(np.abs(a).max()) or 1.0) for a, b in pairs):
        return Joint(False, False, f"{APART}together they come to other scores")
    if wanted is Together.SHARED:
        return Joint(True, True)
    return Joint(False, False, f"{APART}together their last bits differ; --batching shared allows that")


def _replies(numbers: Sequence[int], engine: Engine, tokens: TokenRun, most: int) -> list[list[Logits]]:
    """What each of some sequences is answered to single tokens, after beginnings of different lengths.
    Round by round one more takes part, from two on."""
    opened: list[SeqId] = []
    answers: list[list[Logits]] = [[] for _ in numbers]
    try:
        for number in numbers:
            opened.append(engine.open())
            engine.forward([Step(opened[-1], tokens[: max(1, min(CUT, len(tokens) - most)) + number], False)])
        for count in range(2, most + 1):
            parts = [n for n, number in enumerate(numbers) if number < count]
            steps = [Step(opened[n], tokens[-count : len(tokens) - count + 1], True) for n in parts]
            for n, scores in zip(parts, engine.forward(steps) if steps else (), strict=True):
                assert scores is not None
                answers[n].append(scores)
    finally:
        for seq in opened:
            if engine.is_open(seq):
                engine.close(seq)
    return answers
