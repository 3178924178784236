"""The worth of entries, as formulas."""

from __future__ import annotations

import pytest

from headstart.prefix.stops import StopKind
from headstart.prefix.worth import (
    ATTENTION_TOKENS,
    MOST_HITS,
    NEVER_REUSED,
    STEP_TOKENS,
    checkpoint_cost,
    logits_cost,
    mark_worth,
    recompute_cost,
    worth,
)


def test_a_token_far_in_costs_more_to_read_again() -> None:
    assert recompute_cost(0, 1) == pytest.approx(1, rel=1e-3)
    assert recompute_cost(ATTENTION_TOKENS, ATTENTION_TOKENS + 256) == pytest.approx(2 * 256, rel=0.02)


def test_recompute_cost_adds_up() -> None:
    assert recompute_cost(0, 500) == pytest.approx(recompute_cost(0, 200) + recompute_cost(200, 500))


def test_worth_grows_with_cost_and_reuse_and_falls_with_size() -> None:
    assert worth(100, 10, 0) == pytest.approx(100 * NEVER_REUSED / 10)
    assert worth(100, 10, 1) > 60 * worth(100, 10, 0)
    assert worth(200, 10, 1) == pytest.approx(2 * worth(100, 10, 1))
    assert worth(100, 20, 1) == pytest.approx(worth(100, 10, 1) / 2)


def test_reuse_counts_up_to_a_limit() -> None:
    assert worth(1, 1, MOST_HITS + 100) == worth(1, 1, MOST_HITS)


def test_a_grid_checkpoint_is_worth_nothing_until_used() -> None:
    assert mark_worth(StopKind.GRID, 100, 10, 0) == 0
    assert mark_worth(StopKind.GRID, 100, 10, 1) == mark_worth(StopKind.HEAD, 100, 10, 1) > 0
    assert mark_worth(None, 100, 10, 0) > 0


def test_marks_cost_what_they_save() -> None:
    assert checkpoint_cost(100, 400) == recompute_cost(100, 400)
    assert logits_cost(1) == pytest.approx(STEP_TOKENS, rel=1e-3)
