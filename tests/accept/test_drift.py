"""A busy machine is half as fast and twice as fast in turn: the clock alone accuses nobody then."""

from __future__ import annotations

import pytest

from headstart.accept.verdict import Outcome
from headstart.lab.defect import Defect
from headstart.lab.defects.counting import HitButReads, KeepAliveFakes, ReportedZero
from headstart.lab.stack import Pace
from tests.accept.drifting import Drifting, Silent, SilentDrifting, verdicts

CLOCKED = ("exact_repeat", "append", "middle_edit", "side_requests", "cancel", "must_miss", "honesty")
SLOW = Pace(token_s=250e-6)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("defect", [Drifting, SilentDrifting], ids=lambda defect: defect.name)
def test_a_sound_server_whose_speed_drifts_is_not_accused(defect: type[Defect]) -> None:
    gates = (*CLOCKED, "restart") if defect is Drifting else (*CLOCKED, "control")
    found = verdicts(defect, gates)
    failed = [one for one in found if one.outcome is Outcome.FAIL]
    # That it says nothing is a fault, and honesty names it.
    assert [one for one in failed if (one.gate, one.part) != ("honesty", "stated")] == []
    assert any(one.outcome is Outcome.PASS for one in found)


@pytest.mark.timeout(120)
@pytest.mark.parametrize("defect", [HitButReads, KeepAliveFakes], ids=lambda defect: defect.name)
def test_a_claimed_hit_that_is_read_is_caught_by_the_clock_too(defect: type[Defect]) -> None:
    (clock,) = [one for one in verdicts(defect, ["honesty"], pace=SLOW) if one.part == "clock"]
    assert clock.outcome is Outcome.FAIL, clock.reason
    assert "measured 2 times more" in clock.reason
    assert clock.figures["measured_again"] == 2


@pytest.mark.timeout(120)
def test_a_hit_reported_as_none_is_caught_by_the_clock_too() -> None:
    (clock,) = [one for one in verdicts(ReportedZero, ["honesty"], pace=SLOW) if one.part == "clock"]
    assert clock.outcome is Outcome.FAIL, clock.reason
    assert "far too short" in clock.reason


@pytest.mark.timeout(120)
def test_a_silent_server_without_a_cache_is_caught_by_the_clock_alone() -> None:
    found = {
        (one.gate, one.tier): one
        for one in verdicts(Silent, ["exact_repeat", "append"], cache=False, pace=SLOW)
    }
    repeat = found["exact_repeat", "2k"]
    assert repeat.outcome is Outcome.FAIL, repeat.reason
    assert "measured 2 times more" in repeat.reason
