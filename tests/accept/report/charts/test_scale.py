from __future__ import annotations

import pytest

from headstart.accept.report.charts.scale import Linear, Log, decades, ticks, time_ticks


def test_linear_stays_on_the_picture() -> None:
    scale = Linear(0, 200, 50, 150)
    assert [scale.at(value) for value in (0, 100, 200, 900, -5)] == [50, 100, 150, 150, 50]
    assert Linear(0, 0, 7, 9).at(3) == 7


def test_log_puts_equal_ratios_equally_far_apart() -> None:
    scale = Log(0.01, 100, 0, 400)
    assert [scale.at(value) for value in (0.01, 0.1, 1, 100)] == pytest.approx([0, 100, 200, 400])
    assert scale.at(0) == 0


@pytest.mark.parametrize("high", [0.003, 1, 7, 99, 1024, 7936, 131_072, 1e9])
@pytest.mark.parametrize("make", [ticks, time_ticks])
def test_ticks_are_few_even_and_inside(high: float, make: object) -> None:
    marks = make(high)  # type: ignore[operator]
    assert marks[0] == 0
    assert 2 <= len(marks) <= 7
    assert marks[-1] <= high * (1 + 1e-9)


def test_ticks_of_nothing() -> None:
    assert ticks(0) == ticks(-1) == ticks(float("nan")) == [0.0]
    assert time_ticks(0) == [0.0]


def test_ticks_of_time_are_round_on_a_clock() -> None:
    assert time_ticks(507) == [0, 120, 240, 360, 480]
    assert time_ticks(9000) == [0, 1800, 3600, 5400, 7200, 9000]


def test_decades_hold_what_they_are_made_for() -> None:
    assert decades(0.084, 48.0) == pytest.approx([0.01, 0.1, 1, 10, 100])
    assert decades(1, 1) == pytest.approx([1, 10])
    assert decades(0.1, 10) == pytest.approx([0.1, 1, 10])
