"""The small judgements that detectors rest on."""

from __future__ import annotations

import pytest

from headstart.blame.causes.clock_words import DATE, MOMENT, period
from headstart.blame.causes.history import granularity
from headstart.blame.causes.key_order import reordered
from headstart.blame.causes.random_id import is_random
from headstart.blame.diff import taken_out
from headstart.blame.exchange import Dialect, Exchange, Usage


@pytest.mark.parametrize(
    ("one", "other", "every"),
    [
        ("14:31:05", "14:31:06", "second"),
        ("14:31", "14:32", "minute"),
        ("14:31:00", "14:32:00", "minute"),
        ("14:00:00", "15:00:00", "hour"),
        ("2 PM", "3 PM", "hour"),
        ("2026-11-30T00:00:00Z", "2026-12-01T00:00:00Z", "day"),
        ("2026-11-30 14:31:05.120", "2026-11-30 14:31:05.480", "second"),
    ],
)
def test_how_often_a_clock_changes(one: str, other: str, every: str) -> None:
    assert period(one, other) == every


@pytest.mark.parametrize(
    "text",
    ["2026-11-30", "30 Nov 2026", "Mon Nov 30 2026", "Monday, November 30, 2026", "2026/11/30", "30.11.2026"],
)
def test_dates(text: str) -> None:
    found = DATE.search(f"it is {text} here")
    assert found is not None
    assert found.group() == text


@pytest.mark.parametrize(
    "text",
    [
        "2026-11-30T14:31:05Z",
        "2026-11-30 14:31:05.25+01:00",
        "Mon, 30 Nov 2026 14:31:05 GMT",
        "2:31 PM",
        "14:31 UTC",
    ],
)
def test_moments(text: str) -> None:
    found = MOMENT.search(f"it is {text} here")
    assert found is not None
    assert found.group() == text


@pytest.mark.parametrize(
    "word", ["c918d6", "msg_8f3ab21c90", "b5d59e2d-9ecb-4a10-8c00-0123456789ab", "01HxYz9QkT2b"]
)
def test_drawn_words(word: str) -> None:
    assert is_random(word)


@pytest.mark.parametrize(
    "word", ["belt", "deadbeef", "stop_belt", "2026", "counter2", "one-small", "facade", "123456"]
)
def test_words_that_are_not_drawn(word: str) -> None:
    assert not is_random(word)


def turns(*cached: int | None) -> list[Exchange]:
    return [
        Exchange(number, 0.0, Dialect.OPENAI_CHAT, "", {}, usage=Usage(9, value))
        for number, value in enumerate(cached)
    ]


@pytest.mark.parametrize(
    ("cached", "step"),
    [
        ((0, 2048, 4096, 10240), (2048, 0)),
        ((8191, 16383, 32767), (8192, 1)),
        ((None, 3584, 7168), (3584, 0)),
        ((0, 100, 217, 350), None),
        ((0, 4096), None),
        ((0, 4096, 4096), None),
        ((), None),
    ],
)
def test_the_step_a_server_resumes_at(cached: tuple[int | None, ...], step: tuple[int, int] | None) -> None:
    assert granularity(turns(*cached)) == step


@pytest.mark.parametrize(
    ("one", "other", "place"),
    [
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}, "."),
        ({"a": {"x": 1, "y": 2}}, {"a": {"y": 2, "x": 1}}, ".a"),
        ({"a": [{"x": 1, "y": 2}]}, {"a": [{"y": 2, "x": 1}]}, ".a[0]"),
        ({"required": ["a", "b"]}, {"required": ["b", "a"]}, ".required"),
        ({"order": ["a", "b"]}, {"order": ["b", "a"]}, None),
        ({"a": 1}, {"a": True}, None),
        ({"a": 1}, {"a": 1}, None),
        ({"a": 1}, {"a": 2}, None),
    ],
)
def test_keys_in_another_order(one: object, other: object, place: str | None) -> None:
    assert reordered(one, other) == place


@pytest.mark.parametrize(
    ("left", "right", "part"),
    [
        ("<a>x</a>\n<b>y</b>", "<b>y</b>", "<a>x</a>\n"),
        ("one\ntwo\nthree", "one\nthree", "two\n"),
        ("abc", "ac", "b"),
        ("abc", "aXc", ""),
        ("abc", "abc", ""),
        ("aaaa", "aa", "aa"),
    ],
)
def test_what_was_taken_out(left: str, right: str, part: str) -> None:
    assert taken_out(left, right) == part
