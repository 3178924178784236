"""Same or not, warm or not, and the grid behind a sweep."""

from __future__ import annotations

from dataclasses import replace

import pytest

from headstart.accept.exchange import Ask, Exchange, Failure, FailureKind, Score
from headstart.accept.fixtures import Tier
from headstart.accept.hits import judge_hit
from headstart.accept.judge import (
    Answer,
    Calibration,
    Floor,
    Reach,
    Timing,
    Warmth,
    beyond,
    gap,
    granularity,
    same,
    score_difference,
    small_size,
    warmth,
)
from headstart.accept.verdict import Outcome

FLOOR = Floor(0.0, True)
CALIBRATION = Calibration(0.05, 0.001, 0.06, 0.01, 4.0, 30, None, FLOOR)


def exchange(text: str = "", **fields: object) -> Exchange:
    return Exchange("1", Ask(), 0.0, 1.0, text=text, **fields)  # type: ignore[arg-type]


def grid(step: int, minus: int) -> list[tuple[Reach, int]]:
    depths = (100, 999, 4096, 8191, 8192, 8193, 16383, 20000, 30000)
    return [(Reach(d, d), max(0, (d + minus) // step * step - minus)) for d in depths]


@pytest.mark.parametrize(("step", "minus"), [(1, 0), (16, 0), (256, 0), (8192, 1), (2048, 0)])
def test_granularity_is_found(step: int, minus: int) -> None:
    found = granularity(grid(step, minus))
    assert (found.step_tokens, found.minus, found.irregular) == (step, minus, False)


def test_no_grid_is_called_irregular() -> None:
    found = granularity([(Reach(100, 100), 90), (Reach(200, 200), 13), (Reach(300, 300), 300)])
    assert found.irregular
    assert found.step_tokens == 187


def test_nothing_restored_is_no_fine_grid() -> None:
    assert granularity([(Reach(d, d), 0) for d in (100, 500, 900)]).step_tokens == 900


def test_gap_and_beyond_keep_unknown_apart() -> None:
    reach = Reach(100, 130)
    assert (gap(reach, None), beyond(reach, None)) == (None, None)
    assert (gap(reach, 0), beyond(reach, 131)) == (100, 1)


def test_scores_are_compared_up_to_the_first_other_token() -> None:
    a = [Score("x", -0.1, {"x": -0.1, "y": -3.0}), Score("y", -0.5), Score("z", -9.0)]
    b = [Score("x", -0.2, {"x": -0.2, "y": -2.5}), Score("q", -0.7, {"y": -0.6}), Score("z", -1.0)]
    assert score_difference(a, b) == pytest.approx(0.5)
    assert score_difference([], b) is None


def test_scores_judge_before_text_and_facts_against_both() -> None:
    cold, near = exchange("12", scores=(Score("1", -0.1),)), exchange("13", scores=(Score("1", -0.3),))
    far = exchange("12", scores=(Score("1", -4.0),))
    assert same(cold, near, FLOOR).answer is Answer.SAME
    assert same(cold, far, FLOOR).answer is Answer.DIFFERENT
    assert same(cold, near, FLOOR, facts_right=False).by == "facts"
    assert same(cold, exchange(""), FLOOR).answer is Answer.DIFFERENT


def test_text_that_differs_is_a_fault_only_where_cold_runs_agree() -> None:
    assert same(exchange("a"), exchange("b"), FLOOR).answer is Answer.DIFFERENT
    assert same(exchange("a"), exchange("b"), Floor(None, False)).answer is Answer.UNDECIDED
    assert same(exchange("a"), exchange("b"), FLOOR, facts_right=True).answer is Answer.SAME


def test_the_clock() -> None:
    assert warmth(0.06, 4000, CALIBRATION) is Warmth.WARM
    assert warmth(4.0, 4000, CALIBRATION) is Warmth.COLD
    assert warmth(0.06, 10, CALIBRATION) is Warmth.UNCLEAR


@pytest.mark.parametrize(
    ("reused", "outcome"), [(1000, "PASS"), (999, "PASS"), (998, "FAIL"), (1001, "FAIL"), (0, "FAIL")]
)
def test_hits_by_the_reply(reused: int, outcome: str) -> None:
    done = exchange("x", prompt_tokens=1200, reused=reused)
    assert judge_hit(done, Reach(1000, 1000), 1, CALIBRATION).outcome is Outcome(outcome)


def test_hits_by_the_clock_where_the_reply_is_silent() -> None:
    reach = Reach(4000, 4000)
    quick, slow = (exchange("x", prompt_tokens=4000, first_token_s=s) for s in (0.06, 4.1))
    assert judge_hit(quick, reach, 1, CALIBRATION).outcome is Outcome.PASS
    assert judge_hit(slow, reach, 1, CALIBRATION).outcome is Outcome.FAIL
    lost = exchange(failure=Failure(FailureKind.DROPPED, "gone"))
    assert judge_hit(lost, reach, 1, CALIBRATION).outcome is Outcome.FAIL


@pytest.mark.parametrize(
    ("tokens", "read_s_per_token", "allowance", "spread_s", "small"),
    [
        (8192, 0.0125, 512, 0.1, "2k"),
        (8192, 0.0125, 512, 8.0, "tier"),
        (8192, 0.0001, 16, 0.0, "tier"),
        (8192, 0.0125, 1024, 0.1, "tier"),
        (2048, 0.0125, 16, 0.1, "tier"),
        (1024, 0.0125, 16, 0.1, "tier"),
    ],
)
def test_the_small_size_is_one_that_still_tells(
    tokens: int, read_s_per_token: float, allowance: int, spread_s: float, small: str
) -> None:
    spread = Timing((20.0, 20.0 + spread_s))
    calibration = replace(CALIBRATION, read_s_per_token=read_s_per_token, cold=spread)
    assert small_size(Tier("tier", tokens), calibration, allowance).name == small


def score(token: str, **top: float) -> Score:
    return Score(token, top[token], top)


@pytest.mark.parametrize(
    ("cold", "warm", "answer"),
    [
        (score("A", A=-0.6, B=-0.9), score("B", A=-0.8, B=-0.7), Answer.UNDECIDED),
        (score("A", A=-0.1, B=-2.9), score("B", A=-0.9, B=-0.6), Answer.DIFFERENT),
        (score("A", A=-0.6, C=-0.9), score("B", A=-0.8, B=-0.7), Answer.DIFFERENT),
        (score("A", A=-0.6, B=-0.9), score("A", A=-0.6, B=-0.9), Answer.DIFFERENT),
    ],
    ids=["near tie", "it was no tie", "not among the likeliest", "broken off"],
)
def test_a_wrong_answer_by_a_near_tie_is_not_decided(cold: Score, warm: Score, answer: Answer) -> None:
    one, other = exchange("A", scores=(cold,)), exchange("B", scores=(warm,))
    found = same(one, other, FLOOR, facts_right=False)
    assert found.answer is answer
    assert "is wrong" in found.detail
