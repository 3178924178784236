from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headstart.chat.replies.events import ArgumentsDelta, CallEnd, CallStart, Event, TextDelta, ThinkingDelta
from headstart.chat.replies.events import joined as join
from headstart.chat.replies.harmony import MARKERS, HarmonySplitter

TOOLS: dict[str, Any] = {"run": {}}
CALL = '<|start|>assistant<|channel|>commentary to=functions.run <|constrain|>json<|message|>{"a": 1}<|call|>'


def split(text: str, cut: int = 0, **options: Any) -> tuple[list[Event], list[str]]:
    splitter = HarmonySplitter(TOOLS, new_id=lambda: "x", **options)
    return join(splitter.feed(text[:cut]) + splitter.feed(text[cut:]) + splitter.end()), splitter.warnings


def test_channels() -> None:
    text = "<|channel|>analysis<|message|>so<|end|>" + CALL
    wanted: list[Event] = [
        ThinkingDelta("so"), CallStart(0, "x", "run"), ArgumentsDelta(0, '{"a": 1}'), CallEnd(0)
    ]  # fmt: skip
    assert split(text) == (wanted, [])
    assert split(text.removesuffix("<|call|>"), hold=True) == (wanted, [])


def test_several_messages() -> None:
    text = "<|channel|>commentary<|message|>I look.<|end|>" + CALL + CALL.replace("<|call|>", "<|end|>")
    text += "<|start|>assistant<|channel|>final<|message|>Done < all.<|return|>"
    events, warnings = split(text)
    assert [event.text for event in events if isinstance(event, TextDelta)] == ["I look.", "Done < all."]
    assert sum(isinstance(event, CallEnd) for event in events) == 2 and warnings == []


def test_the_addressee_may_stand_before_the_channel() -> None:
    events, _ = split(' to=functions.run<|channel|>commentary json<|message|>{"a": "}"}')
    assert events[1:] == [ArgumentsDelta(0, '{"a": "}"}'), CallEnd(0)]


@pytest.mark.parametrize("body", ['{"a": ', "nothing<|call|>", '{"a" 1}<|call|>'])
def test_a_broken_call_is_text(body: str) -> None:
    text = "<|channel|>commentary to=functions.run<|message|>" + body
    events, warnings = split(text, hold=True)
    assert events == [TextDelta(text.removesuffix("<|call|>"))] and len(warnings) == 1


def test_plain_text_without_channels() -> None:
    assert split("assist you") == ([TextDelta("assist you")], [])


@given(pieces=st.lists(st.sampled_from((*MARKERS, "assistant", " to=run", "analysis", '{"a": 1}', "x", " "))))
@settings(max_examples=200, deadline=None)
def test_cuts_change_nothing(pieces: list[str]) -> None:
    text = "".join(pieces)
    splitter = HarmonySplitter(TOOLS, new_id=lambda: "x")
    single = join([event for c in text for event in splitter.feed(c)] + splitter.end())
    events, warnings = split(text, len(text) // 2)
    assert (single, splitter.warnings) == (events, warnings)
    for index in {event.index for event in events if isinstance(event, CallEnd)}:
        parts = [e.text for e in events if isinstance(e, ArgumentsDelta) and e.index == index]
        assert isinstance(json.loads("".join(parts)), dict)
