"""A finding of the clock, measured again."""

from __future__ import annotations

import pytest

from headstart.accept.clock import Lap, confirmed, far_apart, measure_again
from headstart.accept.exchange import Exchange
from headstart.accept.hits import Hit
from headstart.accept.judge import Warmth
from headstart.accept.session import Options
from headstart.accept.verdict import Outcome
from tests.accept.gates.scripted import TIERS, Scripted, exchange

SLOW = Hit(Outcome.FAIL, "took as long as reading all", "clock")


def pair_of(cold_s: float, suspect_s: float) -> tuple[Exchange, Exchange]:
    return exchange(case="cold", waited_s=cold_s), exchange(case="suspect", waited_s=suspect_s)


@pytest.mark.parametrize(
    ("times_s", "warmth"),
    [
        ((0.1, 4.0, 4.0), Warmth.COLD),
        ((0.1, 4.0, 2.4), Warmth.COLD),
        ((0.1, 4.0, 1.3), Warmth.WARM),
        ((0.1, 4.0, 1.5), Warmth.UNCLEAR),
        ((1.0, 4.0, 2.9), Warmth.UNCLEAR),
        ((0.01, 0.1, 0.09), Warmth.UNCLEAR),
        ((0.01, 0.1, 0.01), Warmth.UNCLEAR),
    ],
)
def test_a_lap_speaks_by_a_wide_margin_only(times_s: tuple[float, float, float], warmth: Warmth) -> None:
    assert Lap(*(exchange(waited_s=one) for one in times_s)).warmth is warmth


def test_a_lap_without_a_first_token_says_nothing() -> None:
    assert Lap(exchange(), exchange(), exchange(first_token_s=None)).warmth is Warmth.UNCLEAR


def test_one_disagreeing_lap_ends_it() -> None:
    session = Scripted(options=Options(TIERS, samples=3), bent={"a few tokens": {"first_token_s": 0.1}})
    suspects = iter([9.0, 0.2, 9.0])
    doubt = measure_again(session, Warmth.COLD, lambda: pair_of(10.0, next(suspects)))
    assert not doubt.agreed
    assert len(doubt.laps) == 2
    assert "the clock disagrees with itself" in doubt.words


def test_a_hit_fails_by_the_clock_where_every_lap_agrees() -> None:
    session = Scripted(options=Options(TIERS, samples=3), bent={"a few tokens": {"first_token_s": 0.1}})
    (hit,), cases = confirmed(session, [SLOW], lambda: pair_of(10.0, 9.0))
    assert hit.outcome is Outcome.FAIL
    assert "measured 3 times more: 9.000 s beside 10.000 s" in hit.words
    assert cases == ["cold", "suspect"] * 3
    (hit,), _ = confirmed(session, [SLOW], lambda: pair_of(10.0, 1.0))
    assert hit.outcome is Outcome.INCONCLUSIVE


def test_what_the_server_states_is_not_measured_again() -> None:
    session = Scripted()
    stated = Hit(Outcome.FAIL, "reused 0 of 900", "reply", 0, 900)
    assert confirmed(session, [stated], lambda: pair_of(1.0, 1.0)) == ([stated], [])
    assert session.sent == []


def test_far_apart_means_a_factor_and_a_tenth_of_a_second() -> None:
    assert far_apart(0.06, 0.2)
    assert not far_apart(0.01, 0.1)
    assert not far_apart(1.0, 2.9)
