"""Resumed sequences of the toy engine continue bit for bit like cold ones, and the checker sees faults."""

from __future__ import annotations

import numpy as np
import pytest

from headstart.engines.toy import ToyEngine
from headstart.engines.toy_model import LayerKind
from tests.engines.equality import (
    Fault,
    Source,
    cold_logits,
    compare,
    compare_corrupted,
    corrupt,
    draw_chunks,
    floor,
    random_tokens,
    record,
    resume,
    resume_live,
    state_at,
)

MODELS: dict[str, tuple[LayerKind, ...]] = {
    "dense": ("full", "full"),
    "window": ("window", "full", "window", "full"),
    "hybrid": ("recurrent", "full", "recurrent", "full"),
    "recurrent only": ("recurrent", "recurrent"),
    "all": ("full", "window", "recurrent"),
}
WINDOW = 16
CASES = 4


def toy(model: str, seed: int = 0) -> ToyEngine:
    return ToyEngine(
        MODELS[model], window=WINDOW, context_tokens=256, max_step_tokens=32, shares_rows=True, seed=seed
    )


def seed_of(model: str, source: Source) -> int:
    return list(MODELS).index(model) * 10 + list(Source).index(source)


@pytest.mark.parametrize("source", Source)
@pytest.mark.parametrize("model", MODELS)
def test_resumed_logits_are_bit_equal(model: str, source: Source) -> None:
    engine = toy(model)
    random = np.random.default_rng(seed_of(model, source))
    largest = engine.max_step_tokens
    for case in range(CASES):
        length = int(random.integers(2, 90))
        position = int(random.integers(1, length + 1))
        old = random_tokens(random, engine, length)
        tail = random_tokens(random, engine, int(random.integers(1, 30)))
        stops = draw_chunks(random, position, 1, largest)
        if engine.layout.recurrent:  # a checkpoint stands where a chunk ends
            chunks = stops + (draw_chunks(random, length - position, 1, largest) if length > position else ())
        else:
            chunks = draw_chunks(random, length, 1, largest)
        seq = engine.open()
        recording = record(engine, seq, old, chunks, stops=[position])
        tail_chunks = draw_chunks(random, len(tail), 1, largest)
        state = state_at(recording, position, tail)
        if source is Source.RESTORE:
            logits = resume(engine, state, tail_chunks, random)
        else:
            logits = resume_live(engine, seq, state, tail_chunks, source)
        engine.close(seq)
        new = np.concatenate([old[:position], tail])
        cold = cold_logits(engine, new, draw_chunks(random, len(new), 1, largest))
        assert compare(logits, cold).same_bits, f"{case=} {length=} {position=} {chunks=} {tail_chunks=}"


@pytest.mark.parametrize("model", MODELS)
def test_the_floor_is_zero(model: str) -> None:
    engine = toy(model)
    random = np.random.default_rng(1)
    tokens = random_tokens(random, engine, 60)
    assert floor(engine, tokens, [draw_chunks(random, 60, 1, 16) for _ in range(4)]) == 0.0


@pytest.mark.parametrize("fault", Fault)
@pytest.mark.parametrize("model", MODELS)
def test_every_fault_is_noticed(model: str, fault: Fault) -> None:
    engine, other = toy(model), toy(model, seed=1)
    random = np.random.default_rng(2)
    old = random_tokens(random, engine, 60)
    tail = random_tokens(random, engine, 5)
    chunks = draw_chunks(random, 60, 1, 1)
    position = 40
    stops = [position - 1, position, position + 1]
    recording = record(engine, engine.open(), old, chunks, stops)
    foreign = record(other, other.open(), old, chunks, stops)
    good = state_at(recording, position, tail)
    spoiled = corrupt(engine, fault, good, recording, foreign)
    cold = cold_logits(engine, np.concatenate([old[:position], tail]), (1,) * 45)
    assert compare_corrupted(engine, good, (5,), cold).same_bits
    if spoiled is None:
        assert not could_happen(engine, fault)
    else:
        assert compare_corrupted(engine, spoiled, (len(spoiled.tail),), cold).differs(0.0)


def could_happen(engine: ToyEngine, fault: Fault) -> bool:
    """Whether this layout has the state that `fault` spoils."""
    layout = engine.layout
    match fault:
        case Fault.WRONG_CHECKPOINT | Fault.OTHER_CHECKPOINT | Fault.FRESH_CHECKPOINT:
            return layout.recurrent
        case Fault.LOST_WINDOW_ROW:
            return layout.window_tokens > 0
        case Fault.OTHER_LAYER:  # needs two layers of one kind
            return len(layout.planes) > len({plane.window_tokens for plane in layout.planes}) * 2
        case Fault.SHIFTED | Fault.OTHER_TOKEN:
            return bool(layout.planes)
    return True
