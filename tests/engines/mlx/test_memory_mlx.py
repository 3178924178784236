"""How long a context fits, and how large a chunk, before any work starts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headstart.engines.mlx.memory import Needs, chunk_tokens, limited_context, needs_of
from headstart.engines.mlx.options import MlxOptions
from headstart.errors import ConfigError, ModelError

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
