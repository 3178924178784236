"""The figures of the gate stages."""

from __future__ import annotations

import pytest

from headstart.accept.exchange import FailureKind
from headstart.accept.gates.stages import verdict
from headstart.accept.verdict import Outcome
from tests.accept.gates.made_up import calibration, exchange, failed


def test_reading_beside_writing() -> None:
    cold = exchange("cold", prompt_tokens=8000, first_token_s=20.0, total_s=21.0, completion_tokens=21)
    warm = exchange(
        "warm", prompt_tokens=8000, first_token_s=0.2, total_s=1.2, completion_tokens=21, reused=7999
    )

    found = verdict("8k", [cold], [warm], calibration())

    assert found.outcome is Outcome.PASS
    assert found.figures["to_first_word_tokens_per_s"] == pytest.approx(400)
    assert found.figures["decode_tokens_per_s"] == pytest.approx(20)
    assert found.figures["reading_share_cold"] == pytest.approx(20 / 35)
    assert found.figures["warm_s"] == 0.2
    assert "57%" in found.reason and "400 tokens/s" in found.reason


def test_the_calibrations_rate_stands_in_for_replies_of_one_token() -> None:
    found = verdict("8k", [exchange(completion_tokens=1)], [], calibration())

    assert found.outcome is Outcome.PASS
    assert found.figures["decode_tokens_per_s"] == pytest.approx(20)
    assert "warm_s" not in found.figures


def test_a_repeat_that_reused_nothing_is_not_called_warm() -> None:
    found = verdict("8k", [exchange()], [exchange(reused=0)], calibration())

    assert "warm_s" not in found.figures


def test_what_is_missing_is_said() -> None:
    whole = verdict("8k", [exchange(first_token_s=None)], [], calibration())
    uncounted = verdict("8k", [exchange(prompt_tokens=None)], [], calibration())
    unwritten = verdict("8k", [exchange(completion_tokens=None)], [], calibration(decode_s_per_token=0.0))

    assert {one.outcome for one in (whole, uncounted, unwritten)} == {Outcome.INCONCLUSIVE}
    assert "streamed" in whole.reason
    assert "how many tokens a prompt" in uncounted.reason
    assert "wrote" in unwritten.reason


def test_a_hang_fails() -> None:
    assert verdict("8k", [failed(FailureKind.HUNG)], [], calibration()).outcome is Outcome.FAIL
