"""Single tokens of several sequences in one pass over the weights: the bits of each alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from mlx_lm.models import base, llama

from headstart.engines.base import SeqId, Step
from headstart.engines.mlx import together
from headstart.engines.mlx.engine import MlxEngine, load
from headstart.engines.mlx.options import MlxOptions, Together
from headstart.errors import EngineError
from tests.engines.equality import random_tokens
from tests.fixtures.mlx_models import NAMES, MlxModels

Load = Callable[[str], MlxEngine]
APART = {"deepseek_v32", "llama4"}
"""Their own code asks of a cache what several have not."""
KINDS = [name for name in NAMES if name not in APART]


@pytest.fixture
def passes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many sequences each pass over the weights had."""
    seen: list[int] = []
    real = together.read_together

    def read(model: Any, sequences: Any, tokens: mx.array) -> mx.array:
        seen.append(len(sequences))
        return real(model, sequences, tokens)

    monkeypatch.setattr("headstart.engines.mlx.engine.read_together", read)
    return seen


def begun(engine: MlxEngine, random: np.random.Generator, lengths: tuple[int, ...]) -> list[SeqId]:
    """A sequence of each length."""
    opened = []
    for length in lengths:
        opened.append(engine.open())
        for start in range(0, length, engine.max_step_tokens):
            chunk = random_tokens(random, engine, min(engine.max_step_tokens, length - start))
            engine.forward([Step(opened[-1], chunk, wants_logits=False)])
    return opened


def states(engine: MlxEngine, seq: SeqId) -> list[bytes]:
    """All rows that are there, and the recurrent state."""
    rows = engine.rows(seq, engine.window_start(seq), engine.position(seq))
    mark = [engine.checkpoint(seq)] if engine.layout.recurrent else []
    return [plane.tobytes() for plane in rows.planes] + mark


def replies(engine: MlxEngine, *, joined: bool) -> list[bytes]:
    """Everything two and three sequences answer to 40 tokens each, and what they leave behind. Between, one
    reads alone, and a token ahead that does not come."""
    random = np.random.default_rng(11)
    opened = begun(engine, random, (100, 9, 33))
    found: list[bytes] = []
    for step in range(40):
        active = opened if step % 4 else opened[1:]
        tokens = random.integers(0, 200, (len(active), 1)).astype(np.int32)
        steps = [Step(seq, token, 1, step % 3 == 0) for seq, token in zip(active, tokens, strict=True)]
        answers = engine.forward(steps) if joined else [engine.forward([one])[0] for one in steps]
        answers += engine.forward([Step(opened[0], np.array([step], np.int32), 1, greedy=True)])
        found += [scores.tobytes() for scores in answers if scores is not None]
    for seq in opened:
        found += states(engine, seq)
        engine.close(seq)
    return found


@pytest.mark.parametrize("name", [*KINDS, "llama/kv8", "qwen3_next/kv4"])
def test_every_bit_is_that_of_a_sequence_alone(name: str, engines: Load, passes: list[int]) -> None:
    engine = engines(name)
    assert engine.joins and not engine.batches_sequences
    passes.clear()
    assert replies(engine, joined=True) == replies(engine, joined=False)
    assert passes == [2, 3, 3, 3] * 10


@pytest.mark.parametrize("name", sorted(APART))
def test_where_it_cannot_be_each_is_read_alone(name: str, engines: Load, passes: list[int]) -> None:
    engine = engines(name)
    assert not engine.joins
    passes.clear()
    assert any("one after the other" in note for note in engine.facts.notes)
    assert replies(engine, joined=True) == replies(engine, joined=False)
    assert not passes


def test_more_than_are_proved_go_in_several_passes(mlx_model: MlxModels, passes: list[int]) -> None:
    engine = load(mlx_model("llama"), MlxOptions(ctx_size=256, max_sequences=11))
    passes.clear()
    opened = begun(engine, np.random.default_rng(1), tuple(range(3, 14)))
    before = engine.forward([Step(opened[0], np.array([5], np.int32), True)])
    steps = [Step(seq, np.array([5], np.int32), True) for seq in opened]
    scores = engine.forward(steps)
    assert passes == [8, 3] and len(scores) == 11 and before is not None
    assert engine.forward(
        [*steps[:9], Step(opened[9], random_tokens(np.random.default_rng(2), engine, 6), 1)]
    )
    assert passes == [8, 3, 8], "the ninth has nobody to share with"


def test_never_and_one_sequence_read_alone(mlx_model: MlxModels) -> None:
    never = load(mlx_model("llama"), MlxOptions(ctx_size=256, together=Together.NEVER))
    single = load(mlx_model("llama"), MlxOptions(ctx_size=256, max_sequences=1))
    assert not never.joins and not single.joins
    assert not never.facts.notes and not single.facts.notes


def blurred(factor: float) -> Callable[..., mx.array]:
    """A pass that differs from single ones, as it may on another device."""
    real = together.read_together
    return lambda *given: real(*given) * factor


@pytest.mark.parametrize(
    ("wanted", "factor", "note"),
    [
        (Together.EXACT, 1 + 1e-5, "--batching shared allows that"),
        (Together.SHARED, 1 + 1e-5, None),
        (Together.SHARED, 1.01, "other scores"),
    ],
)
def test_other_bits_are_for_shared_only_and_other_scores_for_nobody(
    wanted: Together, factor: float, note: str | None, mlx_model: MlxModels, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headstart.engines.mlx.engine.read_together", blurred(factor))
    engine = load(mlx_model("llama"), MlxOptions(ctx_size=256, together=wanted))
    assert engine.joins is engine.batches_sequences is (note is None)
    assert bool(engine.facts.notes) is (note is not None)
    assert note is None or note in engine.facts.notes[0]


def test_mlx_lm_is_left_as_it_was(mlx_model: MlxModels, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = load(mlx_model("llama"), MlxOptions(ctx_size=256))
    opened = begun(engine, np.random.default_rng(1), (3, 4))
    monkeypatch.setattr(type(engine._model), "__call__", broken)
    with pytest.raises(EngineError, match="2 tokens together: no such thing"):
        engine.forward([Step(seq, np.array([5], np.int32), True) for seq in opened])
    assert not any(engine.is_open(seq) for seq in opened)
    assert vars(llama)["scaled_dot_product_attention"] is base.scaled_dot_product_attention


def broken(*given: Any, **options: Any) -> mx.array:
    raise RuntimeError("no such thing")
