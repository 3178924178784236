"""Every format: what its writer writes is read back, however the text is cut; nothing broken is lost."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headstart.chat.replies.events import (
    ArgumentsDelta,
    CallEnd,
    CallStart,
    Event,
    TextDelta,
    ThinkingDelta,
    joined,
)
from headstart.chat.replies.splitter import Splitter
from headstart.chat.replies.syntax import syntax_of
from tests.chat.replies.writers import WRITERS, Call

TOOLS: dict[str, Any] = {
    "read_file": {
        "type": "object",
        "properties": {
            "path": {"type": "string"},
            "limit": {"type": "integer"},
            "deep": {"type": "boolean"},
            "tags": {"type": "array", "items": {"type": "string"}},
        },
    },
    "run": {"type": "object", "properties": {"options": {"type": "object"}}},
}
FORMATS = sorted(WRITERS)
# Marks that a format has no way to write inside a text are left out of the texts.
TEXTS = st.text("ab \n\"'\\{}[]()=,:é</>`#", max_size=12)
CALLS = st.lists(
    st.one_of(
        st.tuples(
            st.just("read_file"),
            st.fixed_dictionaries(
                {},
                optional={
                    "path": TEXTS,
                    "limit": st.integers(-9, 99),
                    "deep": st.booleans(),
                    "tags": st.lists(TEXTS, max_size=2),
                },
            ),
        ),
        st.tuples(st.just("run"), st.fixed_dictionaries({"options": st.dictionaries(st.just("k"), TEXTS)})),
    ),
    min_size=1,
    max_size=3,
)
MARKS = (
    "<tool_call>", "</tool_call>", '{"name": "read_file", ', '"arguments": {', '{"name": "run"', "}", "}}",
    "<function=run>", "<parameter=options>", "</parameter>", "</function>", "<arg_key>path</arg_key>",
    "<arg_value>", "</arg_value>", "[TOOL_CALLS]", "[ARGS]", "[", "]", "run(", "options={}", ")",
    "<｜tool▁calls▁begin｜>", "<｜tool▁call▁begin｜>", "<｜tool▁sep｜>",
    "<｜tool▁call▁end｜>", "```tool_code\n", "```", "<|tool_call>call:run{",
    "<start_function_call>call:run{", "options:{", "<escape>", '<|"|>',
    "<tool_call|>", "<think>", "</think>", " ", "\n", "x", '"', "1", ",", ";", "<|python_tag|>",
)  # fmt: skip


def split(
    text: str, name: str, cuts: list[int] | None = None, **options: Any
) -> tuple[list[Event], list[str]]:
    ids = (f"id{number}" for number in itertools.count())
    syntax = syntax_of("", tools=name, reasoning="think")
    splitter = Splitter(syntax, TOOLS, new_id=lambda: next(ids), **options)
    places = [0, *sorted(cut % (len(text) + 1) for cut in cuts or ()), len(text)]
    events = [event for a, b in itertools.pairwise(places) for event in splitter.feed(text[a:b])]
    return joined(events + splitter.end()), splitter.warnings


def calls_of(events: list[Event]) -> list[Call]:
    starts = [event for event in events if isinstance(event, CallStart)]
    ended = {event.index for event in events if isinstance(event, CallEnd)}
    texts = {s.index: "" for s in starts}
    for event in events:
        if isinstance(event, ArgumentsDelta):
            texts[event.index] += event.text
    return [(s.name, json.loads(texts[s.index])) for s in starts if s.index in ended]


def text_of(events: list[Event]) -> str:
    return "".join(event.text for event in events if isinstance(event, TextDelta))


@pytest.mark.parametrize("written", FORMATS)
@given(calls=CALLS, cuts=st.lists(st.integers(0, 999), max_size=6), hold=st.booleans())
@settings(max_examples=60, deadline=None)
def test_what_is_written_is_read(written: str, calls: list[Call], cuts: list[int], hold: bool) -> None:
    name, write = WRITERS[written]
    events, warnings = split("<think>\nso\n</think>\n\n" + write(calls), name, cuts, hold=hold)
    assert calls_of(events) == calls
    assert text_of(events) == "" and warnings == []
    assert events[0] == ThinkingDelta("so")


@pytest.mark.parametrize("written", FORMATS)
@given(
    pieces=st.lists(st.sampled_from(MARKS), max_size=14),
    cuts=st.lists(st.integers(0, 999), max_size=8),
    hold=st.booleans(),
)
@settings(max_examples=100, deadline=None)
def test_cuts_change_nothing(written: str, pieces: list[str], cuts: list[int], hold: bool) -> None:
    name, text = WRITERS[written][0], "".join(pieces)
    assert split(text, name, cuts, hold=hold) == split(text, name, hold=hold)
    assert split(text, name, list(range(len(text))), hold=hold) == split(text, name, hold=hold)


@pytest.mark.parametrize("written", FORMATS)
@given(calls=CALLS, cut=st.integers(0, 9999), hold=st.booleans())
@settings(max_examples=60, deadline=None)
def test_a_call_that_breaks_off_is_text(written: str, calls: list[Call], cut: int, hold: bool) -> None:
    name, write = WRITERS[written]
    text = write(calls[:1])
    begun = text[: cut % len(text)]
    events, _ = split("hm " * (name not in ("llama3-json", "pythonic")) + begun, name, hold=hold)
    told = text_of(events)
    if not calls_of(events):
        assert told.removeprefix("hm ") == begun
    elif told.strip("hm "):
        assert begun.endswith(told.removeprefix("hm "))
    assert hold is False or not any(isinstance(e, CallStart) for e in events) or calls_of(events)


@pytest.mark.parametrize("written", FORMATS)
@given(pieces=st.lists(st.sampled_from(MARKS[:-12]), max_size=14))
@settings(max_examples=100, deadline=None)
def test_nothing_malformed_is_lost(written: str, pieces: list[str]) -> None:
    text = "".join(pieces)
    events, _ = split(text, WRITERS[written][0], hold=True)
    if not calls_of(events) and not any(isinstance(event, ThinkingDelta) for event in events):
        assert text_of(events) == text


@pytest.mark.parametrize("written", FORMATS)
def test_without_tools_all_is_text(written: str) -> None:
    name, write = WRITERS[written]
    text = write([("run", {"options": {}})])
    splitter = Splitter(syntax_of("", tools=name), {})
    assert joined(splitter.feed(text) + splitter.end()) == [TextDelta(text)]


def test_text_is_not_held_back() -> None:
    splitter = Splitter(syntax_of("", tools="hermes"), TOOLS)
    assert splitter.feed("a <tool_") == [TextDelta("a ")]
    assert splitter.feed("b <") == [TextDelta("<tool_b ")]
    assert splitter.end() == [TextDelta("<")]


def test_arguments_come_as_they_are_written() -> None:
    splitter = Splitter(syntax_of("", tools="hermes"), TOOLS, new_id=lambda: "x")
    assert splitter.feed('<tool_call>{"name": "run", "arguments": {"a') == [
        CallStart(0, "x", "run"),
        *(ArgumentsDelta(0, c) for c in '{"a'),
    ]


def test_a_text_parameter_streams() -> None:
    splitter = Splitter(syntax_of("", tools="qwen-xml"), TOOLS, new_id=lambda: "x")
    events = splitter.feed('<tool_call>\n<function=read_file>\n<parameter=path>\na"\n</par')
    assert joined(events)[1] == ArgumentsDelta(0, '{"path": "a\\"')
    rest = splitter.feed("x\n</parameter>\n</function>\n</tool_call>") + splitter.end()
    assert calls_of(joined(events + rest)) == [("read_file", {"path": 'a"\n</parx'})]


def test_a_value_may_hold_its_own_closing_tag() -> None:
    path = "a</parameter>b</parameter>\n<p"
    assert calls_of(split(WRITERS["qwen-xml"][1]([("read_file", {"path": path})]), "qwen-xml")[0]) == [
        ("read_file", {"path": path})
    ]


def test_a_broken_call_leaves_the_next_one_whole() -> None:
    good = WRITERS["hermes"][1]([("run", {"options": {}})])
    events, warnings = split('<tool_call>{"name": "run", oops ' + good, "hermes", hold=True)
    assert text_of(events) == '<tool_call>{"name": "run", oops '
    assert calls_of(events) == [("run", {"options": {}})]
    assert len(warnings) == 1 and "given back as text" in warnings[0]


def test_a_tool_that_was_not_offered() -> None:
    events, warnings = split('<tool_call>{"name": "gone", "arguments": {}}</tool_call>', "hermes")
    assert calls_of(events) == [("gone", {})]
    assert warnings == ["the model called gone, a tool that was not offered"]
    for name, text in (("llama3-json", '{"name": "gone", "parameters": {}}'), ("pythonic", "[gone(a=1)]")):
        assert split(text, name) == ([TextDelta(text)], [])


def test_a_reply_that_begins_inside_the_thoughts() -> None:
    events, _ = split("so\n</think>\n\nyes", "hermes", thinking=True)
    assert events == [ThinkingDelta("so"), TextDelta("yes")]


def test_a_bare_line_break_in_a_string_is_escaped() -> None:
    events, _ = split('<tool_call>{"name": "run", "arguments": {"a": "1\n2"}}</tool_call>', "hermes")
    assert calls_of(events) == [("run", {"a": "1\n2"})]


def test_deep_nesting_is_refused_without_recursion() -> None:
    text = '<tool_call>{"name": "run", "arguments": {"a": ' + "[" * 5000
    events, warnings = split(text, "hermes", hold=True)
    assert text_of(events) == text and "nested" in warnings[0]


@pytest.mark.parametrize(
    ("name", "text"),
    [("gemma-python", "```tool_code\n```"), ("deepseek", "<｜tool▁calls▁begin｜><｜tool▁calls▁end｜>")],
)
def test_markers_without_a_call_are_text(name: str, text: str) -> None:
    events, warnings = split(text, name)
    assert events == [TextDelta(text)] and len(warnings) == 1
