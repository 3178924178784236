"""Rules of the gate concurrency."""

from __future__ import annotations

from typing import Any

import pytest

from headstart.accept.exchange import Counters, FailureKind
from headstart.accept.fixtures import Marker, Passage
from headstart.accept.gates.concurrency import Heard, foreign, head_verdict, verdict
from headstart.accept.judge import Sameness
from headstart.accept.verdict import Outcome
from tests.accept.gates.made_up import (
    BROKEN_KINDS,
    DIFFERENT,
    SAME,
    UNDECIDED,
    exchange,
    failed,
    reach,
)


def passage(value: str) -> Passage:
    return Passage(f"EARLY={value}", (Marker("EARLY", value, 6),))


def heard(
    right: bool | None = None, same: Sameness | None = SAME, other: str | None = None, **changes: Any
) -> Heard:
    return Heard(exchange("at once", **changes), exchange("alone"), same, right, other)


def test_a_value_of_another_conversation_is_found_in_text_and_thinking() -> None:
    others = [passage("22222"), passage("33333")]

    assert foreign(exchange(text="it is 33333"), passage("11111"), others) == "33333"
    assert foreign(exchange(text="", reasoning="22222?"), passage("11111"), others) == "22222"
    assert foreign(exchange(text="11111"), passage("11111"), others) is None
    assert foreign(exchange(text="22222"), passage("22222"), others) is None


def test_answers_like_those_given_alone_pass() -> None:
    found = verdict([heard(True), heard(None), heard(True, UNDECIDED)], 3)

    assert found.outcome is Outcome.PASS
    assert found.figures["replies_judged"] == 3
    assert found.cases == ["at once", "alone"]


def test_a_foreign_fact_fails_whatever_else_agrees() -> None:
    found = verdict([heard(True), heard(True, SAME, "33333", reused=0)], 2)

    assert found.outcome is Outcome.FAIL
    assert "33333" in found.reason


def test_a_wrong_fact_of_its_own_fails() -> None:
    found = verdict([heard(True), heard(False, text="EARLY=9")], 2)

    assert found.outcome is Outcome.FAIL
    assert "EARLY=9" in found.reason


def test_another_answer_than_alone_fails() -> None:
    found = verdict([heard(True), heard(None, DIFFERENT)], 2)

    assert found.outcome is Outcome.FAIL
    assert found.figures["replies_different"] == 1


def test_replies_that_nothing_judges_are_not_passed() -> None:
    found = verdict([heard(True), heard(None, UNDECIDED)], 2)

    assert found.outcome is Outcome.INCONCLUSIVE
    assert "only 1 of 2" in found.reason
    assert verdict([], 2).outcome is Outcome.INCONCLUSIVE


@pytest.mark.parametrize("kind", BROKEN_KINDS)
def test_a_server_that_breaks_under_load_fails(kind: FailureKind) -> None:
    broken = Heard(failed(kind, status=500), None, None, None, None)

    assert verdict([heard(True), broken], 2).outcome is Outcome.FAIL
    assert head_verdict([exchange(), failed(kind)], reach(900), None, 1).outcome is Outcome.FAIL


@pytest.mark.parametrize("status", [429, 503])
def test_a_server_that_says_it_is_full_is_not_failed(status: int) -> None:
    kind = FailureKind.REFUSED if status == 429 else FailureKind.SERVER_ERROR
    full = Heard(failed(kind, status=status), None, None, None, None)

    found = verdict([heard(True), full], 2)

    assert found.outcome is Outcome.INCONCLUSIVE
    assert "too many at once" in found.reason


@pytest.mark.parametrize(
    ("reused", "words", "times"),
    [((0, 890), "once", 1.01), ((0, 0), "twice", 2.0), ((0, 445), "1.5 times", 1.5)],
)
def test_how_often_a_common_head_was_read(reused: tuple[int, int], words: str, times: float) -> None:
    found = head_verdict([exchange(reused=one) for one in reused], reach(900), None, 16)

    assert found.outcome is Outcome.PASS
    assert words in found.reason
    assert found.figures["times_read"] == pytest.approx(times, abs=0.01)


def test_the_servers_counters_come_before_its_replies() -> None:
    found = head_verdict([exchange(reused=None)] * 2, reach(900), Counters(read_tokens=2000), 16)

    assert found.outcome is Outcome.PASS
    assert "twice" in found.reason


def test_two_new_prompts_cannot_both_be_reused() -> None:
    found = head_verdict([exchange(reused=890), exchange(reused=890)], reach(900), None, 16)

    assert found.outcome is Outcome.FAIL
    assert "220" in found.reason and "1,100" in found.reason
    template_only = [exchange(reused=16), exchange(reused=900)]
    assert head_verdict(template_only, reach(900), None, 16).outcome is Outcome.PASS


def test_a_head_nobody_counts() -> None:
    assert head_verdict([exchange(reused=None)] * 2, reach(900), None, 16).outcome is Outcome.INCONCLUSIVE
    silent = [exchange(prompt_tokens=None)] * 2
    assert head_verdict(silent, reach(900), None, 16).outcome is Outcome.INCONCLUSIVE
