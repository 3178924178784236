"""Calibration goes on with what it can measure."""

from __future__ import annotations

import pytest

from headstart.accept.gates import load
from headstart.accept.verdict import Outcome
from headstart.lab.defect import Defect
from headstart.lab.defects import replies
from headstart.lab.defects.replies import EmptyOnRepeat, ErrorOnRepeat
from headstart.lab.selftest import Bench


@pytest.mark.timeout(120)
@pytest.mark.parametrize("defect", [ErrorOnRepeat, EmptyOnRepeat], ids=lambda defect: defect.name)
def test_a_repeat_that_goes_wrong_is_left_to_the_gates(
    defect: type[Defect], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replies, "LONG_BODY_BYTES", 0)
    monkeypatch.setattr(replies, "LONG_TOKENS", 0)
    with Bench(defect) as bench:
        session = bench.session("0dd0dd00")
        preflight, repeat = (load(name).run(session) for name in ("preflight", "exact_repeat"))
    found = session.calibration
    assert found.problems and "a repeated prompt" in found.problems[0]
    assert found.read_s_per_token > 0
    assert found.warm.samples == ()
    (told,) = [one for one in preflight if one.part == "calibration"]
    assert told.outcome is Outcome.INCONCLUSIVE
    assert found.problems[0] in told.reason
    assert any(one.outcome is Outcome.FAIL for one in repeat)
