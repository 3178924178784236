"""The MLX engine beside equality: kinds it does not know, threads, limits, and what it refuses."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from mlx_lm.models import gemma3_text, llama
from mlx_lm.models.cache import KVCache, make_prompt_cache

from headstart.engines.base import Step
from headstart.engines.mlx import kinds
from headstart.engines.mlx.engine import MlxEngine, load
from headstart.engines.mlx.options import MlxOptions
from headstart.errors import ConfigError, EngineError, EngineFull
from tests.engines.equality import cold_logits, random_tokens, record, resume, state_at
from tests.fixtures.mlx_models import NAMES, MlxModels

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


@pytest.mark.parametrize("position", [60, 150, 400])
def test_whole_states_of_a_windowed_model_go_on_beyond_the_window(
    position: int, monkeypatch: pytest.MonkeyPatch, mlx_model: MlxModels
) -> None:
    made = gemma3_text.Model.make_cache
    monkeypatch.setattr(
        gemma3_text.Model,
        "make_cache",
        lambda model: [NewKind() if type(one) is KVCache else one for one in made(model)],
    )
    engine = load(mlx_model("gemma3_text"), MlxOptions(ctx_size=512))
    assert engine.layout.planes == ()
    random = np.random.default_rng(6)
    tokens = random_tokens(random, engine, position + 30)
    seq = engine.open()
    recording = record(engine, seq, tokens[:position], (position,), stops=[position])
    engine.close(seq)
    state = state_at(recording, position, tokens[position:])
    cold = cold_logits(engine, tokens, (1,) * len(tokens))
    assert resume(engine, state, (11, 19)).tobytes() == cold.tobytes()


@pytest.mark.parametrize("call", ["forward", "restore", "cut"])
def test_where_mlx_fails_the_sequence_ends_and_the_engine_goes_on(
    call: str, monkeypatch: pytest.MonkeyPatch, mlx_model: MlxModels
) -> None:
    engine = load(mlx_model("gemma3_text"), MlxOptions(ctx_size=512))
    tokens = np.arange(1, 41, dtype=np.int32)
    seq = engine.open()
    engine.forward([Step(seq, tokens, wants_logits=False)])
    rows = engine.rows(seq, 0, 40)

    def fails(*_: Any, **__: Any) -> Any:
        raise RuntimeError("out of memory")

    with (
        monkeypatch.context() as broken,
        pytest.raises(EngineError, match=r"MLX failed while .*out of memory"),
    ):
        broken.setattr(mx, "eval", fails)
        if call == "forward":
            engine.forward([Step(seq, tokens, wants_logits=True)])
        elif call == "restore":
            engine.restore([rows], None, 40)
        else:
            engine.cut(seq, 30, rows.cut(6, 30), None)
    assert engine.is_open(seq) is (call == "restore")
    again = engine.restore([rows], None, 40)
    engine.forward([Step(again, tokens, wants_logits=True)])


@pytest.mark.parametrize("name", [name for name in NAMES if name not in ("mamba2", "falcon_h1")])
def test_the_scores_are_those_of_mlx_lms_own_caches(name: str, engines: Load) -> None:
    """Masks and windows are right, not only alike every time. A window summed in another order is close."""
    engine = engines(name)
    tokens = random_tokens(np.random.default_rng(7), engine, 150)
    caches = make_prompt_cache(engine._model)
    plain = None
    for start, stop in ((0, 40), (40, 77), *((at, at + 1) for at in range(77, 150))):
        plain = engine._model(mx.array(tokens[None, start:stop]), cache=caches)[0, -1].astype(mx.float32)
        mx.eval(plain)
    seq = engine.open()
    ours = None
    for start, stop in ((0, 40), (40, 77), *((at, at + 1) for at in range(77, 150))):
        (ours,) = engine.forward([Step(seq, tokens[start:stop], wants_logits=stop == 150)])
    engine.close(seq)
    assert ours is not None and plain is not None
    close = 0.2 if "bfloat16" in name else 2e-4
    assert np.abs(ours - np.array(plain)).max() <= (close if engine.layout.window_tokens else 0)


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


def test_the_probe_sees_that_long_chunks_are_computed_otherwise(
    mlx_model: MlxModels, monkeypatch: pytest.MonkeyPatch
) -> None:
    from mlx_lm.models import llama

    real = llama.Model.__call__

    def other_when_long(self: Any, inputs: Any, cache: Any = None, **options: Any) -> Any:
        scores = real(self, inputs, cache=cache, **options)
        if inputs.shape[1] > 100:
            cache[0].keys = cache[0].keys * (1 + 1e-6)
        return scores

    monkeypatch.setattr(llama.Model, "__call__", other_when_long)
    facts = load(mlx_model("llama"), MlxOptions(ctx_size=256)).facts
    assert facts.state_proved and facts.exact_repeat and not facts.restore_equals_cold
    short = load(mlx_model("llama"), MlxOptions(ctx_size=256, max_step_tokens=80)).facts
    assert short.restore_equals_cold, "no chunk of this engine is that long"


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


@pytest.mark.parametrize("name", ["llama", "gemma3_text", "qwen3_next", "llama4"])
def test_scores_of_several_tokens_are_those_of_each(name: str, engines: Load) -> None:
    """As a draft is checked: the bits of tokens read one at a time."""
    engine = engines(name)
    assert engine.facts.step_scores == engine.max_step_tokens
    tokens = random_tokens(np.random.default_rng(5), engine, 60)
    one, other = engine.open(), engine.open()
    for seq in (one, other):
        engine.forward([Step(seq, tokens[:40], wants_logits=False)])
    (together,) = engine.forward([Step(one, tokens[40:], wants_logits=7)])
    alone = [engine.forward([Step(other, tokens[at : at + 1], wants_logits=True)])[0] for at in range(40, 60)]
    assert together is not None and together.shape == (7, engine.layout.vocab_size)
    assert together.tobytes() == np.stack([row for row in alone[-7:] if row is not None]).tobytes()
    with pytest.raises(EngineError, match="3 scores asked of a step of 2 tokens"):
        engine.forward([Step(one, tokens[:2], wants_logits=3)])
    for seq in (one, other):
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
