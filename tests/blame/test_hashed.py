"""Recordings of hashes: which part differs is still seen, and nothing is made up."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headstart.blame.bodies import prompt_of
from headstart.blame.diff import change
from headstart.blame.exchange import Dialect, Exchange, Reply, Usage
from headstart.blame.hashed import readable, texts_kept, without_letters
from headstart.blame.json_paths import digest
from headstart.blame.recording import Recorder, Recording, without_bodies
from headstart.blame.verdict import judge
from headstart.cli import main
from tests.blame.corpus import front_cases, history_cases, server
from tests.blame.corpus.agents import play
from tests.blame.corpus.clean import CLEAN

CASES = [*front_cases.CASES, *history_cases.CASES, *server.CASES]
BY_PARTS = {"MODEL_SWITCHED", "TOOLS_REORDERED", "CONTEXT_RELOADED", "SERVER_GAP", "TRUNCATED"}


def hashed(exchange: Exchange) -> Exchange:
    return readable(without_bodies(exchange))


def causes(sent: list[Exchange]) -> dict[int, str]:
    verdicts = [without_letters(verdict) for verdict in judge([hashed(one) for one in sent])]
    return {one.turn.exchange.number: one.finding.cause for one in verdicts if one.finding}


@pytest.mark.parametrize("dialect", [Dialect.OPENAI_CHAT, Dialect.ANTHROPIC, Dialect.OPENAI_RESPONSES])
def test_a_body_has_the_same_parts_again(dialect: Dialect) -> None:
    for exchange in play(dialect):
        there = prompt_of(dialect, exchange.body).pieces
        again = prompt_of(dialect, hashed(exchange).body).pieces
        assert [(one.kind, one.role, one.path) for one in again] == [
            (one.kind, one.role, one.path) for one in there
        ]


text = st.text(max_size=12)
messages = st.lists(
    st.fixed_dictionaries({"role": st.sampled_from(["user", "assistant"]), "content": text}), max_size=6
)


@given(messages, messages)
def test_two_bodies_part_at_the_same_piece(one: list[Any], other: list[Any]) -> None:
    sent = [
        Exchange(number, 0.0, Dialect.OPENAI_CHAT, "", {"messages": said})
        for number, said in enumerate((one, other), 1)
    ]
    places = []
    for pair in (sent, [hashed(exchange) for exchange in sent]):
        parted = change(*(prompt_of(exchange.dialect, exchange.body) for exchange in pair))
        places.append(None if parted is None else (parted.index, parted.path))
    assert places[0] == places[1]


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.cause}: {case.name}")
def test_what_is_told_without_texts_is_true_or_says_that_it_cannot_tell(case: Any) -> None:
    found = causes(case.sent())
    told = {case.cause, *case.besides, "UNKNOWN", "SERVER_GAP", "SERVER_NEVER_HITS", "SIDE_REQUEST_EVICTED"}
    assert set(found.values()) <= told
    if case.cause in BY_PARTS:
        assert found.get(case.number) == case.cause


def test_most_sessions_still_show_a_finding_at_the_request_to_blame() -> None:
    assert sum(case.number in causes(case.sent()) for case in CASES) > 0.8 * len(CASES)


@pytest.mark.parametrize("name", CLEAN)
def test_nobody_is_blamed_for_hashes(name: str) -> None:
    assert causes(CLEAN[name]()) == {}


def test_an_exchange_with_texts_stays_as_it_is() -> None:
    one = play()[0]
    assert texts_kept(one)
    assert readable(one) is one
    assert not texts_kept(without_bodies(one))


@given(st.dictionaries(st.text(max_size=20), st.text(max_size=8), min_size=1, max_size=6))
def test_paths_that_are_none_are_counted_and_raise_nothing(digests: dict[str, str]) -> None:
    one = replace(play()[0], body=None, digests=digests)
    read = readable(one)
    assert read.body is not None
    judge([read, replace(read, number=2)])


@pytest.mark.parametrize(
    "digests",
    [
        {'["\\x"]': "ab"},
        {"model": 5},
        {"model": ["a"]},
        {"model": None},
        ["a"],
        "abc",
        {"$reply.calls": digest(5)},
        {"$reply.calls": digest(True)},
        {"a" + "[0]" * 5000: "ab"},
        {".".join("a" * 5000): "ab"},
        {f"messages[{'9' * 5000}].role": digest("user")},
    ],
    ids=lambda digests: str(digests)[:30],
)
def test_damaged_hashes_raise_nothing(digests: Any) -> None:
    one = replace(play()[0], body=None, digests=digests)
    read = readable(one)
    judge([read, replace(read, number=2)])
    if "$reply" not in str(digests):
        assert "no place in the body" in read.notes[-1]


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.cause}: {case.name}")
def test_no_length_and_no_whole_hash_is_told(case: Any) -> None:
    for verdict in judge([hashed(one) for one in case.sent()]):
        blank = without_letters(verdict)
        for found in filter(None, (blank.finding, *blank.also)):
            assert "characters" not in found.said
            assert re.search(r"sha256:[0-9a-f]{9}", found.said) is None


@pytest.mark.parametrize(("thought", "tokens"), [("", 480), ("Hm. " * 200, 300)])
def test_the_length_of_hashes_makes_no_prompt_grow(thought: str, tokens: int) -> None:
    """A template that drops thinking makes prompts shorter; how much was thought is not recorded."""
    asked: list[dict[str, Any]] = [{"role": "user", "content": "Why is the sky blue?"}]
    if thought:
        asked.append({"role": "assistant", "content": "So.", "reasoning_content": thought})
        asked.append({"role": "user", "content": "And?"})
    more = [*asked, {"role": "assistant", "content": "ok"}, {"role": "user", "content": "go"}]
    sent = [
        Exchange(
            number, number, Dialect.OPENAI_CHAT, "", {"messages": said}, Reply("ok"), Usage(prompt, cached, 1)
        )
        for number, (said, prompt, cached) in enumerate(((asked, 500, 0), (more, tokens, 290)), 1)
    ]
    assert [one.finding for one in judge(sent) if one.finding and one.finding.cause == "TRUNCATED"] == []
    assert "TRUNCATED" not in causes(sent).values()


def test_a_recording_of_hashes_is_explained(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    case = next(case for case in CASES if case.cause == "TIMESTAMP")
    recorder = Recorder(tmp_path / "r.jsonl", "http://x", bodies=False)
    for exchange in case.sent():
        recorder.write(exchange)
    recorder.close()
    assert all(one.body is None for one in Recording(tmp_path / "r.jsonl"))
    assert main(["explain", str(tmp_path / "r.jsonl"), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert any("only their hashes" in note for note in told["notes"])
    (found,) = told["conversations"][0]["findings"]
    assert found["finding"]["cause"] == "UNKNOWN"
    assert (found["finding"]["path"], found["finding"]["offset"]) == ("messages[0].content", None)
    assert "sha256" not in json.dumps(told)
    assert main(["explain", str(tmp_path / "r.jsonl"), "--turns", "2,3"]) == 0
    pair = capsys.readouterr().out
    assert "parting    messages[0].content\n" in pair
    assert "sha256" not in pair
    assert "UNKNOWN" in pair
