"""Failed requests: whose fault, and in how many words."""

from __future__ import annotations

import pytest

from headstart.accept.exchange import FailureKind
from headstart.accept.gates.trouble import said, trouble
from headstart.accept.verdict import Outcome
from tests.accept.gates.made_up import BROKEN_KINDS, exchange, failed


def test_good_replies_are_no_trouble() -> None:
    assert trouble("gate", [exchange(), exchange()]) is None
    assert trouble("gate", []) is None


@pytest.mark.parametrize("kind", BROKEN_KINDS)
def test_what_the_server_does_wrong_fails(kind: FailureKind) -> None:
    verdict = trouble("gate", [exchange(), failed(kind, label="8k")], tier="8k", part="warm")

    assert verdict is not None
    assert verdict.outcome is Outcome.FAIL
    assert (verdict.tier, verdict.part, verdict.cases) == ("8k", "warm", ["bad"])
    assert "8k" in verdict.reason and "in the server's words" in verdict.reason


@pytest.mark.parametrize("kind", [FailureKind.REFUSED, FailureKind.CANCELLED])
def test_no_answer_at_all_decides_nothing(kind: FailureKind) -> None:
    verdict = trouble("gate", [failed(kind)])

    assert verdict is not None
    assert verdict.outcome is Outcome.INCONCLUSIVE


def test_an_error_weighs_more_than_a_refusal() -> None:
    verdict = trouble("gate", [failed(FailureKind.REFUSED), failed(FailureKind.HUNG)])

    assert verdict is not None
    assert verdict.outcome is Outcome.FAIL
    assert verdict.figures["failed_requests"] == 2


def test_a_long_page_of_an_error_becomes_one_short_line() -> None:
    words = said(failed(FailureKind.SERVER_ERROR, "line\n" * 500))

    assert len(words) <= 160
    assert "\n" not in words
    assert said(exchange()) == ""
