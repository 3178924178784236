"""Rules of the gate cancel."""

from __future__ import annotations

from typing import Any

import pytest

from headstart.accept.exchange import Counters, Exchange, FailureKind
from headstart.accept.fixtures import Tier
from headstart.accept.gates.cancel import answer_verdict, choose, kept_verdict, settled, weighed
from headstart.accept.verdict import Outcome, Verdict
from tests.accept.gates.made_up import (
    BROKEN_KINDS,
    DIFFERENT,
    SAME,
    UNDECIDED,
    calibration,
    doubt,
    exchange,
    failed,
)


def cut(total_s: float = 40.1, **changes: Any) -> Exchange:
    return failed(FailureKind.CANCELLED, case="cut", total_s=total_s, **changes)


def again(**changes: Any) -> Exchange:
    return exchange("again", **({"prompt_tokens": 8000} | changes))


def kept(first: Exchange, second: Exchange, allowance: int = 16) -> Verdict:
    return kept_verdict("8k", first, second, cut_after_s=40.0, allowance=allowance, calibration=calibration())


def test_what_was_read_before_is_found_again() -> None:
    found = kept(cut(), again(reused=3840))

    assert found.outcome is Outcome.PASS
    assert "about 4,000 of 8,000" in found.reason and "3,840 were kept" in found.reason
    assert found.figures["kept_tokens"] == 3840
    assert found.cases == ["cut", "again"]


def test_all_of_it_thrown_away_fails() -> None:
    found = kept(cut(), again(reused=0))

    assert found.outcome is Outcome.FAIL
    assert "thrown away" in found.reason


def test_a_small_part_kept_fails_too_and_half_a_block_is_forgiven() -> None:
    assert kept(cut(), again(reused=1000)).outcome is Outcome.FAIL
    assert kept(cut(), again(reused=1000), allowance=1024).outcome is Outcome.PASS


def test_too_little_read_to_tell() -> None:
    assert kept(cut(1.0), again(reused=0), allowance=64).outcome is Outcome.INCONCLUSIVE
    assert kept(cut(), again(reused=0), allowance=8192).outcome is Outcome.INCONCLUSIVE


def test_the_servers_counters_bound_what_it_can_have_read() -> None:
    found = kept(cut(counters=Counters(read_tokens=512)), again(reused=500))

    assert found.outcome is Outcome.PASS
    assert found.figures["read_before_cut_tokens"] == 512
    assert kept(cut(counters=Counters(read_tokens=0)), again(reused=3900)).outcome is Outcome.PASS


def test_a_reply_that_was_complete_before_decides_nothing() -> None:
    assert kept(exchange("cut"), again(reused=8000)).outcome is Outcome.INCONCLUSIVE


@pytest.mark.parametrize(
    ("waited_s", "outcome"),
    [(45.0, Outcome.PASS), (80.0, Outcome.FAIL), (60.0, Outcome.INCONCLUSIVE)],
)
def test_the_clock_tells_where_the_server_does_not(waited_s: float, outcome: Outcome) -> None:
    found = kept(cut(), again(reused=None, first_token_s=waited_s))

    assert found.outcome is outcome
    assert found.figures["kept_tokens"] is None


@pytest.mark.parametrize("kind", BROKEN_KINDS)
def test_a_server_that_breaks_after_a_disconnect_fails(kind: FailureKind) -> None:
    assert kept(cut(), failed(kind)).outcome is Outcome.FAIL
    assert answer_verdict("8k", failed(kind), None, None, None).outcome is Outcome.FAIL


def test_a_cut_that_failed_by_itself_is_reported_as_that() -> None:
    assert kept(failed(FailureKind.SERVER_ERROR), again()).outcome is Outcome.FAIL


@pytest.mark.parametrize(
    ("sameness", "right", "outcome"),
    [
        (SAME, None, Outcome.PASS),
        (DIFFERENT, True, Outcome.FAIL),
        (UNDECIDED, True, Outcome.PASS),
        (None, True, Outcome.PASS),
        (None, False, Outcome.INCONCLUSIVE),
        (None, None, Outcome.INCONCLUSIVE),
        (UNDECIDED, None, Outcome.INCONCLUSIVE),
    ],
)
def test_the_answer_afterwards(sameness: Any, right: bool | None, outcome: Outcome) -> None:
    found = answer_verdict("8k", again(), exchange("cold"), sameness, right)

    assert found.outcome is outcome
    assert found.cases == ["again", "cold"]


def test_only_a_pass_and_a_slow_loss_that_is_counted_settle_it() -> None:
    counted = Counters(read_tokens=4096)
    assert settled([kept(cut(), again(reused=3840))])
    assert settled([kept(cut(counters=counted), again(reused=0))])
    assert not settled([kept(cut(), again(reused=0))])
    assert not settled([kept(cut(counters=counted), again(reused=None, first_token_s=90.0))])
    assert not settled([kept(cut(0.4), again(reused=0), allowance=1)])
    assert not settled([kept(exchange(), again())])


def test_one_loss_by_the_clock_is_no_fault() -> None:
    loss = kept(cut(), again(reused=0))

    assert loss.outcome is Outcome.FAIL
    assert weighed(loss, 1, None).outcome is Outcome.INCONCLUSIVE
    assert weighed(loss, 2, None).outcome is Outcome.FAIL
    counted = kept(cut(counters=Counters(read_tokens=4096)), again(reused=0))
    assert weighed(counted, 1, None).outcome is Outcome.FAIL
    silent = kept(cut(), again(reused=None, first_token_s=90.0))
    assert weighed(silent, 3, doubt(0.1, 90.0, 90.0)).outcome is Outcome.FAIL
    unsure = weighed(silent, 3, doubt(0.1, 90.0, 20.0))
    assert unsure.outcome is Outcome.INCONCLUSIVE
    assert "the clock disagrees" in unsure.reason


def test_a_machine_that_got_slower_did_not_read_so_much_before_the_cut() -> None:
    quick = kept(cut(), again(reused=0, first_token_s=82.0)).figures["read_before_cut_tokens"]
    slow = kept(cut(), again(reused=0, first_token_s=328.0)).figures["read_before_cut_tokens"]

    assert isinstance(quick, int)
    assert isinstance(slow, int)
    assert quick > 3.9 * slow


def test_the_smallest_tier_that_takes_long_enough_is_cut() -> None:
    tiers = (Tier("1k", 1024), Tier("8k", 8192), Tier("32k", 32768))

    assert choose(tiers, calibration(), 64).name == "1k"
    assert choose(tiers, calibration(), 512).name == "8k"
    assert choose(tiers, calibration(read_s_per_token=0.0003), 64).name == "8k"
    assert choose(tiers, calibration(read_s_per_token=0.0), 64).name == "32k"
