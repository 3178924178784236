"""Reports: numbers that add up, whatever was really done."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headstart.prefix.plan import Plan, without_cache
from headstart.prefix.report import CacheReport, Reason, Tier, report
from tests.prefix.fake import MY, counting


def plan(length: int, divergence: int, restore_at: int, reason: Reason | None = None) -> Plan:
    tier = Tier.RAM if restore_at else Tier.NONE
    return Plan(MY, counting(0, length), divergence, restore_at, tier, reason=reason)


@given(length=st.integers(1, 50), divergence=st.integers(0, 50), restored=st.integers(0, 50))
def test_prompt_is_restored_and_replayed_and_new(length: int, divergence: int, restored: int) -> None:
    divergence, restored = min(divergence, length), min(restored, length)
    made = report(plan(length, divergence, restored), restored=restored)
    assert made.restored + made.replayed + made.new == made.prompt_tokens == length
    assert min(made.restored, made.replayed, made.new, made.gap) >= 0
    assert made.gap == made.replayed


def test_the_last_token_is_new_not_replayed() -> None:
    made = report(plan(10, 10, 9), restored=9)
    assert (made.restored, made.replayed, made.new, made.gap) == (9, 0, 1, 0)


def test_an_exact_repeat_reads_nothing() -> None:
    made = report(plan(10, 10, 10), restored=10)
    assert (made.restored, made.replayed, made.new, made.gap) == (10, 0, 0, 0)


def test_a_failed_load_is_a_miss_with_its_reason() -> None:
    made = report(plan(10, 8, 8), restored=0, reason=Reason.CORRUPT)
    assert (made.tier, made.reason, made.replayed, made.gap) == (Tier.NONE, Reason.CORRUPT, 8, 8)


def test_a_fork_that_restored_more_than_planned_leaves_no_reason() -> None:
    made = report(plan(10, 8, 3, Reason.BUSY), restored=8, tier=Tier.LIVE)
    assert (made.tier, made.reason, made.gap) == (Tier.LIVE, None, 0)


def test_more_than_the_prompt_cannot_have_been_restored() -> None:
    with pytest.raises(ValueError, match=r"0\.\.10"):
        report(plan(10, 10, 10), restored=11)


def test_without_cache_everything_is_new() -> None:
    made = report(without_cache(MY, counting(0, 7)), restored=0)
    assert (made.new, made.reason, made.tier) == (7, Reason.DISABLED, Tier.NONE)


def test_json_carries_every_number() -> None:
    made = CacheReport(10, 8, 5, 3, 2, Tier.RAM, Reason.NO_CHECKPOINT, 100, 0.5, 0.25, 80, 0.125)
    assert json.loads(json.dumps(made.to_json())) == {
        "prompt_tokens": 10,
        "divergence": 8,
        "restored": 5,
        "replayed": 3,
        "new": 2,
        "gap": 3,
        "tier": "ram",
        "reason": "no_checkpoint",
        "restored_bytes": 100,
        "restore_s": 0.5,
        "plan_s": 0.25,
        "ssd_bytes": 80,
        "ssd_s": 0.125,
    }
