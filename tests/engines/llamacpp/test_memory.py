"""How long a context gets, and what is said where it is not what was asked for."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headstart.engines.llamacpp.memory import HEADROOM, Needs, available_bytes, context_tokens
from headstart.errors import ConfigError, ModelError

GB = 10**9


def test_the_training_context_where_it_fits() -> None:
    needs = Needs(weights_bytes=GB, contexts=2, cell_bytes=1000, fixed_bytes=0)
    assert context_tokens(0, 8192, needs, 100 * GB) == (8192, None)


def test_as_much_as_fits_with_a_note() -> None:
    needs = Needs(weights_bytes=GB, contexts=4, cell_bytes=100_000, fixed_bytes=0)
    cells, note = context_tokens(0, 131_072, needs, 8 * GB)
    assert cells == int((0.9 * 8 * GB - GB) / 400_000) // 256 * 256
    assert note is not None and "not 131072" in note


def test_what_was_asked_for_or_an_error() -> None:
    needs = Needs(weights_bytes=GB, contexts=1, cell_bytes=100_000, fixed_bytes=GB)
    assert context_tokens(1000, 8192, needs, 100 * GB) == (1024, None)
    with pytest.raises(ConfigError, match=r"5\.00 GB with the weights, 4\.50 GB can be used"):
        context_tokens(29_952, 8192, needs, 5 * GB)


def test_a_model_too_large_for_any_context_is_an_error() -> None:
    needs = Needs(weights_bytes=10 * GB, contexts=1, cell_bytes=100, fixed_bytes=0)
    with pytest.raises(ModelError, match=r"10\.00 GB .* 7\.20 GB"):
        context_tokens(0, 8192, needs, 8 * GB)


@given(
    st.integers(0, 40), st.integers(1, 8), st.integers(1, 10**6), st.integers(0, 10**8), st.integers(1, 64)
)
def test_what_is_given_fits(
    weights_gb: int, contexts: int, cell_bytes: int, fixed_bytes: int, available_gb: int
) -> None:
    needs = Needs(weights_gb * GB, contexts, cell_bytes, fixed_bytes)
    try:
        cells, _ = context_tokens(0, 1 << 20, needs, available_gb * GB)
    except ModelError:
        assert needs.total_bytes(512) > available_gb * GB * HEADROOM
        return
    assert needs.total_bytes(cells) <= available_gb * GB * HEADROOM
    assert cells % 256 == 0


def test_some_memory_is_available() -> None:
    assert available_bytes() > 1 << 20
