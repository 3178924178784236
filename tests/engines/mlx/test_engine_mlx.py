"""The MLX engine beside equality: kinds it does not know, threads, limits, and what it refuses."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from mlx_lm.models import llama
from mlx_lm.models.cache import KVCache

from headstart.engines.base import Step
from headstart.engines.mlx import kinds
from headstart.engines.mlx.engine import MlxEngine, load
from headstart.engines.mlx.options import MlxOptions
from headstart.errors import ConfigError, EngineError, EngineFull
from tests.engines.equality import cold_logits, random_tokens, record, resume, state_at
from tests.fixtures.mlx_models import MlxModels

Load = Callable[[str], MlxEngine]


class NewKind(KVCache):
    """A kind of cache that came out after headstart."""


@pytest.fixture
def of_a_new_kind(monkeypatch: pytest.MonkeyPatch, mlx_model: MlxModels) -> MlxEngine:
    monkeypatch.setattr(
        llama.Model, "make_cache", lambda model: [NewKind() for _ in model.layers], raising=False
    )
    return load(mlx_model("llama"), MlxOptions(ctx_size=256))


def test_an_unknown_kind_is_kept_whole(of_a_new_kind: MlxEngine) -> None:
    engine = of_a_new_kind
    assert engine.layout.planes == () and engine.layout.recurrent
    assert "NewKind" in engine.facts.notes[0] and "whole states" in engine.facts.notes[0]
    assert engine.facts.parts["state_kind"] == "snapshots"
    random = np.random.default_rng(1)
    tokens, tail = random_tokens(random, engine, 40), random_tokens(random, engine, 9)
    seq = engine.open()
    recording = record(engine, seq, tokens, (17, 23), stops=[17])
    whole = np.concatenate([tokens[:17], tail])
    state = state_at(recording, 17, tail)
    cold = cold_logits(engine, whole, (26,))
    assert resume(engine, state, (4, 5)).tobytes() == cold.tobytes()
    engine.cut(seq, 17, None, recording.checkpoints[17])
    (logits,) = engine.forward([Step(seq, tail, wants_logits=True)])
    assert logits is not None and logits.tobytes() == cold.tobytes()
    with pytest.raises(EngineError, match="the snapshot stands at 17, expected 16"):
        engine.restore([], recording.checkpoints[17], 16)
    with pytest.raises(EngineError, match="this is none"):
        engine.restore([], b"what", 4)
    with pytest.raises(EngineError, match="cut short"):
        engine.restore([], recording.checkpoints[17][:-9], 17)


def test_a_state_that_cannot_be_written_down_is_refused() -> None:
    from headstart.engines.mlx.states import _outline

    with pytest.raises(EngineError, match="holds a set"):
        _outline(({1},), [])


def test_a_known_class_whose_arrays_grow_is_no_recurrent_state(monkeypatch: pytest.MonkeyPatch) -> None:
    class Growing:
        def __call__(self, tokens: Any, cache: Any) -> None:
            for one in cache:
                old = one[0]
                new = mx.zeros((1, tokens.shape[1], 4))
                one[0] = new if old is None else mx.concatenate([old, new], axis=1)

    model = Growing()
    with pytest.raises(kinds.UnknownKind, match="grow"):
        kinds.describe(
            lambda caches, count: model(mx.zeros((1, count), mx.int32), caches),
            lambda: [kinds.ArraysCache(1)],
        )


def test_loaded_in_one_thread_and_run_in_another(mlx_model: MlxModels) -> None:
    engine = load(mlx_model("qwen3_next"), MlxOptions(ctx_size=256))
    tokens = random_tokens(np.random.default_rng(2), engine, 30)
    here = cold_logits(engine, tokens, (30,))
    there: list[Any] = []

    def run() -> None:
        seq = engine.open()
        recording = record(engine, seq, tokens[:20], (20,))
        there.append(resume(engine, state_at(recording, 20, tokens[20:]), (10,)))

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert there[0].tobytes() == here.tobytes()


def test_what_comes_out_is_ours(engines: Load) -> None:
    """Neither rows nor logits change when the sequence goes on."""
    engine = engines("llama")
    seq = engine.open()
    tokens = random_tokens(np.random.default_rng(3), engine, 40)
    (logits,) = engine.forward([Step(seq, tokens[:10], wants_logits=True)])
    rows = engine.rows(seq, 0, 10)
    assert logits is not None and rows.sole
    before = (logits.tobytes(), [plane.tobytes() for plane in rows.planes])
    engine.cut(seq, 3, None, None)
    engine.forward([Step(seq, tokens[10:], wants_logits=False)])
    assert (logits.tobytes(), [plane.tobytes() for plane in rows.planes]) == before
    engine.close(seq)


def test_what_cannot_be_is_refused_before_anything_changes(engines: Load) -> None:
    engine = engines("gemma3_text")
    seq = engine.open()
    tokens = random_tokens(np.random.default_rng(4), engine, 80)
    engine.forward([Step(seq, tokens, wants_logits=False)])
    engine.forward([Step(seq, tokens, wants_logits=False)])
    with pytest.raises(EngineError, match="cannot go back to 161"):
        engine.cut(seq, 161, None, None)
    engine.forward([Step(seq, tokens[:60], wants_logits=False)])
    start = engine.window_start(seq)
    assert start > 40
    with pytest.raises(EngineError, match="needs window rows 26"):
        engine.cut(seq, 50, None, None)
    with pytest.raises(EngineError, match=f"holds {start}"):
        engine.rows(seq, start - 1, 100)
    with pytest.raises(EngineError, match="needs 7 rows, not 5"):
        engine.restore([engine.rows(seq, 100, 105)], None, 7)
    with pytest.raises(EngineError, match="a step carries"):
        engine.forward([Step(seq, tokens[:0], wants_logits=True)])
    with pytest.raises(EngineError, match="token ids are"):
        engine.forward([Step(seq, np.array([-1], np.int32), wants_logits=True)])
    with pytest.raises(EngineError, match="one step a sequence"):
        engine.forward([Step(seq, tokens[:1], wants_logits=False)] * 2)
    assert engine.position(seq) == 220
    engine.close(seq)
    with pytest.raises(EngineError, match="is not open"):
        engine.close(seq)
    opened = [engine.open() for _ in range(engine.max_sequences)]
    with pytest.raises(EngineFull):
        engine.open()
    for one in opened:
        engine.close(one)


def test_the_context_is_the_end(mlx_model: MlxModels) -> None:
    engine = load(mlx_model("llama"), MlxOptions(ctx_size=512, max_step_tokens=400))
    seq = engine.open()
    engine.forward([Step(seq, np.ones(400, np.int32), wants_logits=False)])
    with pytest.raises(EngineFull, match=r"400 \+ 113 tokens exceed the context of 512"):
        engine.forward([Step(seq, np.ones(113, np.int32), wants_logits=False)])
    assert engine.position(seq) == 400


def test_a_model_that_cannot_keep_quantised_keys_says_so(mlx_model: MlxModels) -> None:
    with pytest.raises(ConfigError, match=r"--kv-type.*gpt_oss"):
        load(mlx_model("gpt_oss"), MlxOptions(ctx_size=512, kv_bits=8, kv_group=32))
