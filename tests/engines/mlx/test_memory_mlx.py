"""How long a context fits, and how large a chunk, before any work starts."""

from __future__ import annotations

import gc
import json

import mlx.core as mx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headstart.engines.base import Step
from headstart.engines.mlx.engine import MlxEngine, load
from headstart.engines.mlx.memory import (
    TRIAL_TOKENS,
    Needs,
    at_least,
    chunk_now,
    chunk_tokens,
    limited_context,
    needs_of,
    peak_bytes,
)
from headstart.engines.mlx.options import MlxOptions
from headstart.errors import ConfigError, ModelError
from tests.engines.equality import random_tokens
from tests.fixtures.mlx_models import MlxModels

GB = 1_000_000_000
NEEDS = Needs(
    weights_bytes=8 * GB, sequences=2, row_bytes=100_000, fixed_bytes=0, token_bytes=200_000, pair_bytes=128
)
CONFIG = {"max_position_embeddings": 131072}


def test_a_model_that_fits_takes_all() -> None:
    options = MlxOptions(max_step_tokens=512, memory_bytes=100 * GB)
    assert limited_context(options, CONFIG, NEEDS) == (131072, 512, None)


def test_the_chunk_shrinks_before_the_context_does() -> None:
    """98 GB of weights and a prompt of 16 k: the working set is bounded, so it is read in smaller pieces."""
    needs = Needs(98 * GB, 1, 60_000, 0, 12 * 12288 * 4, 96 * 4)
    options = MlxOptions(max_step_tokens=2048, ctx_size=16384, max_sequences=1, memory_bytes=int(112.5 * GB))
    context, chunk, note = limited_context(options, CONFIG, needs)
    assert context == 16384 and 16 <= chunk < 2048
    assert note is not None and f"prompts are read {chunk} tokens at a time, not 2048" in note
    assert needs.total_bytes(context, chunk) <= 0.9 * 112.5 * GB < needs.total_bytes(context, 2 * chunk)


def test_a_context_that_cannot_fit_names_one_that_does() -> None:
    options = MlxOptions(ctx_size=131072, memory_bytes=20 * GB)
    with pytest.raises(
        ConfigError, match=r"needs .* GB with the weights, 18.00 GB can be used; (\d+) tokens"
    ):
        limited_context(options, CONFIG, NEEDS)


def test_without_a_wish_the_context_is_what_fits() -> None:
    context, chunk, note = limited_context(MlxOptions(memory_bytes=20 * GB), CONFIG, NEEDS)
    assert 512 <= context < 131072 and chunk
    assert note is not None and f"the context is {context} tokens, not 131072" in note
    assert NEEDS.total_bytes(context, chunk) <= 18 * GB


def test_where_nothing_useful_fits_the_model_is_refused() -> None:
    with pytest.raises(ModelError, match="with its shortest useful context"):
        limited_context(MlxOptions(memory_bytes=9 * GB), CONFIG, NEEDS)


def test_a_longer_context_than_trained_is_noted() -> None:
    options = MlxOptions(ctx_size=4096, memory_bytes=100 * GB)
    _, _, note = limited_context(options, {"max_position_embeddings": 2048}, NEEDS)
    assert note is not None and "longer than the 2048" in note


@given(st.integers(0, 200), st.integers(1, 4096), st.integers(1, 1 << 17))
def test_a_chunk_is_never_larger_than_asked_and_always_fits(limit_gb: int, wanted: int, context: int) -> None:
    chunk = chunk_tokens(NEEDS, context, wanted, limit_gb * GB)
    assert 0 <= chunk <= wanted
    assert not chunk or NEEDS.total_bytes(context, chunk) <= limit_gb * GB


def test_needs_are_those_of_the_text_part() -> None:
    config = {"text_config": {"hidden_size": 100, "intermediate_size": 300, "num_attention_heads": 8}}
    needs = needs_of(config, weights=1, row=2, fixed=3, sequences=4)
    assert (needs.token_bytes, needs.pair_bytes) == (12 * 300 * 4, 32)
    assert needs.state_bytes(10) == 6 * 20 + 12


def chunks_took(engine: MlxEngine, chunk: int) -> dict[int, int]:
    """The peak of memory of a chunk at the beginning, in the middle and at the end of a prompt."""
    seq, random, starts = engine.open(), np.random.default_rng(1), range(0, 1200, chunk)
    took = {}
    for start in starts:
        step = Step(seq, random_tokens(random, engine, chunk), wants_logits=False)
        if start not in (0, starts[len(starts) // 2], starts[-1]):
            engine.forward([step])
            continue
        gc.collect()
        mx.clear_cache()
        took[start] = peak_bytes(lambda step=step: engine.forward([step]))  # type: ignore[misc]
    engine.close(seq)
    return took


@pytest.mark.parametrize("chunk", [64, 400])
@pytest.mark.parametrize(
    "name", ["llama", "gemma3_text", "gpt_oss", "qwen3_next", "mamba2", "falcon_h1", "deepseek_v32"]
)
def test_no_chunk_takes_more_than_was_said(name: str, chunk: int, mlx_model: MlxModels) -> None:
    """On a busy machine MLX frees later than it could: then the least of three times counts."""
    engine = load(mlx_model(name), MlxOptions(ctx_size=2048, max_step_tokens=chunk, max_sequences=1))
    needs, over = engine._needs, {}
    for _ in range(3):
        over = {
            start: took
            for start, took in chunks_took(engine, chunk).items()
            if took > needs.chunk_bytes(start + chunk, chunk) + 2 * (start + chunk) * needs.row_bytes
        }
        if not over:
            break
    assert not over


def test_what_a_shape_does_not_tell_is_measured(mlx_model: MlxModels) -> None:
    engine = load(mlx_model("mamba2"), MlxOptions(ctx_size=512, max_sequences=1))
    config = json.loads((mlx_model("mamba2") / "config.json").read_text())
    said = needs_of(config, weights=0, row=0, fixed=0, sequences=1)
    assert engine._needs.token_bytes > 2 * said.token_bytes


def test_trials_only_raise() -> None:
    assert at_least(NEEDS, 1, 2) == NEEDS
    raised = at_least(NEEDS, TRIAL_TOKENS * 400_000, TRIAL_TOKENS * 400_000 + TRIAL_TOKENS**2 * 1000)
    assert (raised.token_bytes, raised.pair_bytes) == (600_000, 1500)


@given(st.integers(0, 1 << 17), st.integers(1, 4096), st.integers(-GB, 60 * GB))
def test_a_chunk_shrinks_to_what_is_free(longest: int, wanted: int, free: int) -> None:
    chunk = chunk_now(NEEDS, longest, wanted, free)
    assert min(wanted, 16) <= chunk <= wanted
    assert chunk <= 16 or NEEDS.chunk_bytes(longest + chunk, chunk) <= free
    assert chunk == wanted or NEEDS.chunk_bytes(longest + 2 * chunk + 1, 2 * chunk + 1) > free


def test_an_engine_short_of_memory_asks_for_less(
    mlx_model: MlxModels, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = load(mlx_model("llama"), MlxOptions(ctx_size=2048, max_step_tokens=400, memory_bytes=GB))
    assert engine.max_step_tokens == 400
    in_use = int(0.9 * GB)
    monkeypatch.setattr(mx, "get_active_memory", lambda: in_use - 2_000_000)
    assert 16 < engine.max_step_tokens < 200
    monkeypatch.setattr(mx, "get_active_memory", lambda: in_use + 5)
    assert engine.max_step_tokens == 16
    seq = engine.open()
    engine.forward([Step(seq, np.ones(400, np.int32), wants_logits=False)])
    assert engine.position(seq) == 400, "a step that was composed before is still read"
