"""The rule about side requests."""

from __future__ import annotations

from typing import Any

import pytest

from headstart.accept.clock import Doubt
from headstart.accept.exchange import Ask, Counters, Exchange, FailureKind, Message
from headstart.accept.gates.side_requests import Turn, follow, verdict
from headstart.accept.judge import Warmth
from headstart.accept.verdict import Outcome, Verdict
from tests.accept.gates.made_up import BROKEN_KINDS, calibration, doubt, exchange, failed, reach


def turn(shared: int, reused: int | None, warmth: Warmth = Warmth.UNCLEAR, **changes: Any) -> Turn:
    case = f"turn {shared}"
    return Turn(exchange(case, prompt_tokens=shared + 40, reused=reused, **changes), reach(shared), warmth)


def judged(
    before: Turn, after: Turn, sides: list[Exchange] | None = None, doubt: Doubt | None = None
) -> Verdict:
    four = sides if sides is not None else [exchange(f"side {n}") for n in range(4)]
    return verdict("8k", before, after, four, allowance=16, calibration=calibration(), doubt=doubt)


def test_nothing_lost_passes() -> None:
    found = judged(turn(7000, 6999), turn(7100, 7090))

    assert found.outcome is Outcome.PASS
    assert "4 short requests" in found.reason and "7,090" in found.reason
    assert found.cases == ["turn 7000", "side 0", "side 1", "side 2", "side 3", "turn 7100"]


def test_a_lost_prefix_fails_with_its_price() -> None:
    found = judged(turn(7000, 6999), turn(7100, 0))

    assert found.outcome is Outcome.FAIL
    assert found.figures["lost_tokens"] == 7084
    assert "70.8 s" in found.reason
    assert found.figures["reused_after"] == 0


def test_a_gap_that_was_there_before_is_not_the_side_requests_fault() -> None:
    assert judged(turn(7000, 6000), turn(7100, 6100)).outcome is Outcome.PASS
    assert judged(turn(7000, 6000), turn(7100, 4000)).outcome is Outcome.FAIL


def test_a_few_tokens_more_or_less_are_no_loss() -> None:
    assert judged(turn(7000, 6999), turn(7100, 7100 - 48)).outcome is Outcome.PASS
    assert judged(turn(7000, 6999), turn(7100, 7100 - 49)).outcome is Outcome.FAIL


def test_nothing_reused_before_leaves_nothing_to_take() -> None:
    assert judged(turn(7000, 0), turn(7100, 0)).outcome is Outcome.INCONCLUSIVE


def test_counters_stand_in_for_a_silent_reply() -> None:
    told = turn(7000, None, counters=Counters(reused_tokens=6990))
    lost = turn(7100, None, counters=Counters(reused_tokens=10))

    assert judged(told, lost).outcome is Outcome.FAIL


@pytest.mark.parametrize(
    ("before", "after", "outcome"),
    [
        (Warmth.WARM, Warmth.WARM, Outcome.PASS),
        (Warmth.WARM, Warmth.COLD, Outcome.INCONCLUSIVE),
        (Warmth.WARM, Warmth.UNCLEAR, Outcome.INCONCLUSIVE),
        (Warmth.COLD, Warmth.COLD, Outcome.INCONCLUSIVE),
        (Warmth.UNCLEAR, Warmth.WARM, Outcome.INCONCLUSIVE),
    ],
)
def test_the_clock_decides_where_nothing_else_does(before: Warmth, after: Warmth, outcome: Outcome) -> None:
    found = judged(turn(7000, None, before), turn(7100, None, after))

    assert found.outcome is outcome
    assert found.figures["after_s"] == 0.5


def test_a_loss_by_the_clock_counts_where_it_is_seen_again() -> None:
    pair = (turn(7000, None, Warmth.WARM), turn(7100, None, Warmth.COLD))

    assert judged(*pair, doubt=doubt(0.1, 9.0, 8.0)).outcome is Outcome.FAIL
    assert judged(*pair, doubt=doubt(0.1, 9.0, 0.5)).outcome is Outcome.INCONCLUSIVE


@pytest.mark.parametrize("kind", BROKEN_KINDS)
def test_a_side_request_that_breaks_the_server_fails(kind: FailureKind) -> None:
    assert judged(turn(7000, 6999), turn(7100, 7099), [failed(kind)]).outcome is Outcome.FAIL


def test_a_following_turn_continues_messages_or_text() -> None:
    chat = follow(Ask(messages=(Message("user", "Hi"),)), "", "More?", "turn 2")
    text = follow(Ask(prompt="User: Hi\n\nAssistant:"), "Yes", "More?", "turn 2")

    assert [(m.role, m.content) for m in chat.messages[1:]] == [("assistant", "Yes."), ("user", "More?")]
    assert text.prompt == "User: Hi\n\nAssistant: Yes\n\nUser: More?\n\nAssistant:"
    assert (chat.label, text.label) == ("turn 2", "turn 2")
