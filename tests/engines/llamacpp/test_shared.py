"""The shared context: forks, restores and batched steps stay within the difference of two cold runs."""

from __future__ import annotations

import numpy as np
import pytest

from headstart.engines.base import Engine, Logits, SeqId, Step
from headstart.engines.llamacpp.engine import LlamaCppEngine
from headstart.engines.llamacpp.options import Batching
from headstart.errors import EngineError, EngineFull
from headstart.prefix.tokens import TokenRun
from tests.engines.equality import (
    Fault,
    Source,
    cold_logits,
    compare,
    compare_corrupted,
    corrupt,
    random_tokens,
    record,
    resume,
    resume_live,
    state_at,
)
from tests.engines.llamacpp.conftest import LoadTiny

MODELS = ("llama", "gemma3", "qwen35")
NEAR = 0.1
"""Rounding in the tiny models; their logits have a spread of about 15."""


def shared(load_tiny: LoadTiny, model: str) -> LlamaCppEngine:
    engine: LlamaCppEngine = load_tiny(model, Batching.SHARED)
    return engine


def split(length: int, size: int = 100) -> tuple[int, ...]:
    return tuple(min(size, length - start) for start in range(0, length, size))


def joined(*runs: TokenRun) -> TokenRun:
    return np.concatenate(runs)


@pytest.mark.parametrize("model", MODELS)
def test_facts_say_what_holds(load_tiny: LoadTiny, model: str) -> None:
    engine = shared(load_tiny, model)
    assert engine.batches_sequences and engine.shares_rows
    assert engine.facts.state_proved
    assert not engine.facts.exact_repeat and not engine.facts.restore_equals_cold
    assert any("within rounding" in note for note in engine.facts.notes)


@pytest.mark.parametrize("source", [Source.RESTORE, Source.CUT, Source.FORK])
@pytest.mark.parametrize("model", MODELS)
def test_resumed_sequences_go_on_like_cold_ones(load_tiny: LoadTiny, model: str, source: Source) -> None:
    engine = shared(load_tiny, model)
    random = np.random.default_rng(1)
    beside = engine.open()  # so that cells lie elsewhere
    engine.forward([Step(beside, random_tokens(random, engine, 37), False)])
    for position, length in ((60, 90), (300, 300), (300, 460), (640, 641)):
        tokens = random_tokens(random, engine, length)
        tail = random_tokens(random, engine, 25)
        sizes = split(position) + split(length - position)
        seq = engine.open()
        recording = record(engine, seq, tokens, sizes, (position,))
        state = state_at(recording, position, tail)
        if source is Source.RESTORE:
            got = resume(engine, state, (25,), random)
        else:
            got = resume_live(engine, seq, state, (25,), source)
        engine.close(seq)
        cold = cold_logits(engine, joined(tokens[:position], tail), (*split(position), 25))
        assert not compare(got, cold).differs(NEAR), (position, length, compare(got, cold))
    engine.close(beside)


@pytest.mark.parametrize("model", MODELS)
def test_a_fork_and_its_source_go_their_own_ways(load_tiny: LoadTiny, model: str) -> None:
    engine = shared(load_tiny, model)
    random = np.random.default_rng(2)
    trunk, left, right = (random_tokens(random, engine, n) for n in (250, 120, 120))
    first = engine.open()
    for start in range(0, 250, 50):
        engine.forward([Step(first, trunk[start : start + 50], False)])
    second = engine.fork(first, 250, None, None)
    for start in range(0, 120, 60):  # both in one batch
        a, b = engine.forward(
            [Step(first, left[start : start + 60], True), Step(second, right[start : start + 60], True)]
        )
    assert a is not None and b is not None
    engine.close(first)
    again = engine.forward([Step(second, trunk[:1], True)])[0]
    assert again is not None
    engine.close(second)
    sizes = (50,) * 5 + (60,) * 2
    assert not compare(a, cold_logits(engine, joined(trunk, left), sizes)).differs(NEAR)
    assert not compare(b, cold_logits(engine, joined(trunk, right), sizes)).differs(NEAR)
    cold = cold_logits(engine, joined(trunk, right, trunk[:1]), (*sizes, 1))
    assert not compare(again, cold).differs(NEAR)


@pytest.mark.parametrize("model", MODELS)
def test_steps_of_any_lengths_go_into_one_batch(load_tiny: LoadTiny, model: str) -> None:
    engine = shared(load_tiny, model)
    random = np.random.default_rng(7)
    prompts = [random_tokens(random, engine, 160) for _ in range(3)]
    seqs = [engine.open() for _ in prompts]
    for sizes in ((1, 100, 37), (100, 1, 1), (59, 59, 122)):
        steps = []
        for seq, prompt, size in zip(seqs, prompts, sizes, strict=True):
            at = engine.position(seq)
            steps.append(Step(seq, prompt[at : at + size], at + size == 160))
        logits = engine.forward(steps)
    for seq, prompt, got in zip(seqs, prompts, logits, strict=True):
        assert engine.position(seq) == 160
        assert got is not None
        assert not compare(got, cold_logits_of(engine, seq, prompt)).differs(NEAR)


@pytest.mark.parametrize("model", MODELS)
def test_many_forks_do_not_fill_the_window(load_tiny: LoadTiny, model: str) -> None:
    """Window cells shared by two sequences would never be used again: forks have copies of them."""
    engine = shared(load_tiny, model)
    random = np.random.default_rng(3)
    seq = engine.open()
    for _ in range(12):
        engine.forward([Step(seq, random_tokens(random, engine, 100), False)])
        fork = engine.fork(seq, engine.position(seq), None, None)
        engine.close(seq)
        seq = fork
    assert engine.position(seq) == 1200
    engine.close(seq)


@pytest.mark.parametrize("model", MODELS)
def test_a_full_context_changes_nothing(load_tiny: LoadTiny, model: str) -> None:
    engine = shared(load_tiny, model)
    random = np.random.default_rng(4)
    tokens = random_tokens(random, engine, 1500)
    size = min(100, engine.max_step_tokens)
    first, second = engine.open(), engine.open()
    recording = record(engine, first, tokens, split(1500, size), (1500,))
    for start in range(0, 500, size):
        engine.forward([Step(second, tokens[start : start + size], False)])
    with pytest.raises(EngineFull):
        engine.forward([Step(first, tokens[:30], True), Step(second, tokens[500:530], True)])
    assert (engine.position(first), engine.position(second)) == (1500, 500)
    with pytest.raises(EngineFull, match="no room to restore"):
        engine.restore([recording.rows], recording.checkpoints.get(1500), 1500)
    engine.close(first)
    got = engine.forward([Step(second, tokens[500:530], True)])[0]
    assert got is not None
    engine.close(second)
    cold = cold_logits(engine, tokens[:530], (*split(500, size), 30))
    assert not compare(got, cold).differs(NEAR)
    everything = [engine.open() for _ in range(engine.max_sequences)]  # nothing was left open
    for seq in everything:
        engine.close(seq)


@pytest.mark.parametrize("fault", Fault)
@pytest.mark.parametrize("batching", Batching)
@pytest.mark.parametrize("model", MODELS)
def test_wrong_state_shows(load_tiny: LoadTiny, model: str, batching: Batching, fault: Fault) -> None:
    """Negative controls, for lanes too: each way to hand over wrong state moves the logits clearly."""
    if fault is Fault.OTHER_NAMESPACE:
        return  # other weights are the engine-neutral suite's
    engine: Engine = load_tiny(model, batching)
    random = np.random.default_rng(5)
    at = 200
    tokens, tail = random_tokens(random, engine, at + 3), random_tokens(random, engine, 4)
    seq = engine.open()
    old = record(engine, seq, tokens, (100, 99, 1, 1, 2), (at - 1, at, at + 1))
    engine.close(seq)
    good = state_at(old, at, tail)
    cold = cold_logits(engine, joined(tokens[:at], tail), (100, 99, 1, 4))
    right = compare(resume(engine, good, (4,)), cold)
    assert not right.differs(NEAR / 5)
    assert right.same_bits or batching is Batching.SHARED
    wrong = corrupt(engine, fault, good, old, old)
    if wrong is not None:
        found = compare_corrupted(engine, wrong, (len(wrong.tail),), cold)
        assert found.differs(max(NEAR, 3 * right.difference)), (found, right)


def test_window_rows_that_are_gone_are_asked_for(load_tiny: LoadTiny) -> None:
    engine = shared(load_tiny, "gemma3")
    random = np.random.default_rng(6)
    tokens = random_tokens(random, engine, 1400)
    seq = engine.open()
    recording = record(engine, seq, tokens, split(1400, 100))
    assert 0 < engine.window_start(seq) <= 1400 - engine.layout.window_tokens
    with pytest.raises(EngineError, match="are gone"):
        engine.fork(seq, 300, None, None)
    assert engine.position(seq) == 1400, "the source of a fork goes on unchanged"
    fork = engine.fork(seq, 300, recording.rows.cut(300 - engine.layout.window_tokens, 300), None)
    got = engine.forward([Step(fork, tokens[:20], True)])[0]
    assert got is not None
    engine.close(seq)
    assert not compare(got, cold_logits_of(engine, fork, joined(tokens[:300], tokens[:20]))).differs(NEAR)


def cold_logits_of(engine: Engine, seq: SeqId, tokens: TokenRun) -> Logits:
    """A cold run in the room of `seq`, which is closed."""
    engine.close(seq)
    return cold_logits(engine, tokens, split(len(tokens)))
