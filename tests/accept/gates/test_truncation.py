"""The rule about prompts longer than the context."""

from __future__ import annotations

import pytest

from headstart.accept.exchange import FailureKind
from headstart.accept.gates.truncation import verdict
from headstart.accept.verdict import Outcome
from tests.accept.gates.made_up import exchange, failed

CONTEXT, SENT = 65536, 72000


def test_a_refusal_that_speaks_of_the_length_passes() -> None:
    words = "the prompt has 72000 tokens, the context has room for 65536"
    found = verdict(failed(FailureKind.REFUSED, words, status=400), SENT, CONTEXT, None)

    assert found.outcome is Outcome.PASS
    assert "72000" in found.reason
    assert found.figures["status"] == 400


def test_a_refusal_for_something_else_decides_nothing() -> None:
    found = verdict(failed(FailureKind.REFUSED, "no such model", status=404), SENT, CONTEXT, None)

    assert found.outcome is Outcome.INCONCLUSIVE
    assert verdict(failed(FailureKind.REFUSED, "no", status=413), SENT, CONTEXT, None).outcome is Outcome.PASS


def test_an_error_that_speaks_of_the_length_is_a_refusal_with_the_wrong_status() -> None:
    words = "request exceeds the available context size"
    found = verdict(failed(FailureKind.SERVER_ERROR, words, status=500), SENT, CONTEXT, None)

    assert found.outcome is Outcome.PASS
    assert "try again" in found.reason


@pytest.mark.parametrize(
    "kind", [FailureKind.SERVER_ERROR, FailureKind.HUNG, FailureKind.DROPPED, FailureKind.BROKEN]
)
def test_a_server_that_breaks_fails(kind: FailureKind) -> None:
    assert verdict(failed(kind, "boom"), SENT, CONTEXT, None).outcome is Outcome.FAIL


def test_cutting_in_silence_fails_with_the_figures() -> None:
    found = verdict(exchange(prompt_tokens=32770), SENT, CONTEXT, False)

    assert found.outcome is Outcome.FAIL
    assert "32,770, half of the context, of 72,000" in found.reason
    assert "lost" in found.reason
    assert found.figures["first_fact_right"] is False


def test_cutting_to_the_whole_context_fails_too_even_if_the_fact_is_known() -> None:
    assert verdict(exchange(prompt_tokens=65535), SENT, CONTEXT, True).outcome is Outcome.FAIL


def test_cutting_that_is_named_passes() -> None:
    named = exchange(prompt_tokens=32770, warnings=("the prompt was truncated to 32770 tokens",))
    flagged = exchange(prompt_tokens=32770, raw=b'{"content":"x","truncated":true}')

    assert verdict(named, SENT, CONTEXT, False).outcome is Outcome.PASS
    assert verdict(flagged, SENT, CONTEXT, False).outcome is Outcome.PASS


def test_a_warning_about_something_else_names_no_cut() -> None:
    other = exchange(prompt_tokens=32770, warnings=("max_tokens: the context leaves room for 0",))

    assert verdict(other, SENT, CONTEXT, None).outcome is Outcome.FAIL


def test_an_answer_of_unknown_length_decides_nothing() -> None:
    assert verdict(exchange(prompt_tokens=None), SENT, CONTEXT, None).outcome is Outcome.INCONCLUSIVE
    assert verdict(exchange(prompt_tokens=None), SENT, CONTEXT, True).outcome is Outcome.INCONCLUSIVE


def test_a_context_larger_than_stated_passes_only_where_the_first_fact_is_known() -> None:
    whole = exchange(prompt_tokens=72000)

    assert verdict(whole, SENT, CONTEXT, True).outcome is Outcome.PASS
    assert verdict(whole, SENT, CONTEXT, None).outcome is Outcome.INCONCLUSIVE
    assert verdict(whole, SENT, CONTEXT, False).outcome is Outcome.INCONCLUSIVE


def test_a_prompt_that_was_only_estimated_as_too_long() -> None:
    fits = exchange(prompt_tokens=65000)

    assert verdict(fits, SENT, CONTEXT, None, exact=False).outcome is Outcome.INCONCLUSIVE
    assert verdict(fits, SENT, CONTEXT, None).outcome is Outcome.FAIL
    assert verdict(exchange(prompt_tokens=32770), SENT, CONTEXT, None, exact=False).outcome is Outcome.FAIL
