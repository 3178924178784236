"""The length sweep's rule and its lengths."""

from __future__ import annotations

from typing import Any

import pytest

from headstart.accept.exchange import FailureKind
from headstart.accept.fixtures import Marker, Passage
from headstart.accept.gates.length_sweep import Pads, Point, lengths, padded, verdict
from headstart.accept.judge import Sameness, Warmth
from headstart.accept.verdict import Outcome
from tests.accept.gates.made_up import BROKEN_KINDS, DIFFERENT, SAME, UNDECIDED, exchange, failed


def point(
    length: int, same: Sameness = SAME, warmth: Warmth = Warmth.UNCLEAR, repeat: Any = None, **changes: Any
) -> Point:
    told = {"prompt_tokens": length, "reused": length - 1} | changes
    first = exchange(f"first {length}", prompt_tokens=told["prompt_tokens"])
    return Point(length, first, repeat or exchange(f"again {length}", **told), same, warmth)


def test_lengths_stand_around_multiples_and_fit() -> None:
    found = lengths(None, 600)

    assert found == [191, 192, 193, 255, 256, 257, 511, 512, 513]
    assert 528 in lengths(528, 600)
    assert lengths(1, 600) == found
    assert max(lengths(None, 100_000)) == 2049
    assert lengths(None, 100) == []


def test_equal_answers_from_the_cache_pass() -> None:
    found = verdict([point(255), point(256), point(257)])

    assert found.outcome is Outcome.PASS
    assert "3 of 3" in found.reason and "255 to 257" in found.reason
    assert found.figures["largest_difference"] == 0.01
    assert found.cases[:2] == ["first 255", "again 255"]


def test_another_answer_at_one_length_fails_and_names_it() -> None:
    found = verdict([point(255), point(256, DIFFERENT), point(257)])

    assert found.outcome is Outcome.FAIL
    assert "256 tokens" in found.reason and "4.2" in found.reason
    assert found.cases == ["first 256", "again 256"]


def test_equal_answers_without_any_reuse_prove_nothing() -> None:
    found = verdict([point(255, reused=0), point(256, reused=0)])

    assert found.outcome is Outcome.INCONCLUSIVE
    assert "prove nothing" in found.reason


def test_unknown_reuse_counts_by_the_clock_only() -> None:
    assert verdict([point(255, reused=None)]).outcome is Outcome.INCONCLUSIVE
    assert verdict([point(255, reused=None, warmth=Warmth.WARM)]).outcome is Outcome.PASS


def test_nothing_to_compare_by() -> None:
    found = verdict([point(255, UNDECIDED)])

    assert found.outcome is Outcome.INCONCLUSIVE
    assert "nothing to compare by" in found.reason


def test_lengths_the_server_does_not_tell_are_not_shown() -> None:
    found = verdict([point(255, prompt_tokens=None), point(256, prompt_tokens=None)])

    assert found.outcome is Outcome.INCONCLUSIVE
    assert "how long a prompt is" in found.reason


def test_fewer_than_half_is_not_enough() -> None:
    found = verdict([point(255), point(256, UNDECIDED), point(257, UNDECIDED)])

    assert found.outcome is Outcome.INCONCLUSIVE
    assert "only 1 of 3" in found.reason
    assert verdict([]).outcome is Outcome.INCONCLUSIVE


@pytest.mark.parametrize("kind", BROKEN_KINDS)
def test_a_server_that_breaks_at_one_length_fails(kind: FailureKind) -> None:
    assert verdict([point(255), point(256, repeat=failed(kind))]).outcome is Outcome.FAIL


def test_a_prompt_of_another_length_shows_nothing() -> None:
    missed = [point(255, prompt_tokens=250), point(256, prompt_tokens=251)]

    assert verdict(missed).outcome is Outcome.INCONCLUSIVE
    assert "meant to be" in verdict(missed).reason
    assert verdict([*missed, point(257)]).outcome is Outcome.INCONCLUSIVE


def test_words_are_added_until_the_length_is_right() -> None:
    assert Pads(10).towards(110, 108, 98) == Pads(12)
    assert Pads(10).towards(110, 118, 98) == Pads(6)
    assert Pads(10).towards(111, 118, 98) == Pads(6, 1)
    assert Pads(0).towards(100, 90, 90) == Pads(10)
    assert Pads(3).towards(90, 101, 98) == Pads(0)


def test_padding_moves_the_markers() -> None:
    longer = padded(Passage("EARLY=123 x", (Marker("EARLY", "123", 6),)), "a", 3)

    assert longer.text == "a a a EARLY=123 x"
    assert longer.text[longer.markers[0].at :].startswith("123")
