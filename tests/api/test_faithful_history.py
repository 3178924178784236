"""Replies that come back keep the tokens they were made of, where they mean the same, and only there."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from fastapi.testclient import TestClient
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headstart.api.chat_prompt import ChatPrompt, chat_prompt
from headstart.chat.choices import ChatChoices
from headstart.chat.history import History, Said
from headstart.chat.template import ChatTemplate
from headstart.serving.models import ServedModel
from headstart.serving.request import Delta, Event, PrefillDone
from tests.api.served import Scripted, client_for, served_toy
from tests.api.test_calls import ASKED, REPLY, TEMPLATE, TOOLS
from tests.api.test_openai_stream import REPORT, end

NEXT = {"role": "user", "content": "And then?"}
FORGETS = TEMPLATE.replace("{% if m.reasoning_content %}", "{% if m.reasoning_content and loop.last %}")


@pytest.fixture(scope="module")
def toy() -> Iterator[ServedModel]:
    with served_toy() as model:
        yield model


def fresh(toy: ServedModel, template: str = TEMPLATE, **choices: Any) -> ServedModel:
    """The model with a history of its own."""
    made = ChatTemplate(template, bos="", eos="")
    return replace(toy, template=made, history=History(), chat=ChatChoices(**choices))


def byte_by_byte(text: str) -> list[Event]:
    """A reply of the toy model's tokens, one a byte."""
    deltas = [Delta(byte, chr(byte)) for byte in text.encode("ascii")]
    return [PrefillDone(REPORT), *deltas, end("", len(deltas) + 1)]


class Talk:
    """A client of a model that says what it is told to, and the prompts that its requests became."""

    def __init__(self, model: ServedModel, *replies: str) -> None:
        left = list(replies)
        self._scheduler = Scripted(lambda request: byte_by_byte(left.pop(0) if left else "Done."))
        self.client: TestClient = client_for(replace(model, scheduler=self._scheduler))

    def ask(self, messages: list[Any], key: str = "", **fields: Any) -> dict[str, Any]:
        body = {"messages": messages, "tools": TOOLS} | fields
        answer = self.client.post("/v1/chat/completions", json=body, headers={"x-tenant": key})
        assert answer.status_code == 200, answer.text
        message: dict[str, Any] = answer.json()["choices"][0]["message"]
        return message

    def prompt(self, number: int = -1) -> list[int]:
        return list(map(int, self._scheduler.requests[number].prompt))

    def faithful(self, reply: str) -> bool:
        """Whether the last prompt goes on with the one before it and the tokens of `reply`."""
        begun = [*self.prompt(-2), *reply.encode()]
        return self.prompt()[: len(begun)] == begun


def called(arguments: list[str], content: str | None = "I look at both.", **more: Any) -> dict[str, Any]:
    calls = [
        {"id": f"c{n}", "type": "function", "function": {"name": "look", "arguments": text}}
        for n, text in enumerate(arguments)
    ]
    return {"role": "assistant", "content": content, "tool_calls": calls, **more}


SAME = {
    "as it was": called(['{"path": "a.py", "lines": [1, 2]}', '{"path": "b.py"}']),
    "other key order and spaces": called(['{"lines":[1,2],\n "path":"a.py"}', '{ "path" : "b.py" }']),
    "other blanks around the text": called(
        ['{"path": "a.py", "lines": [1, 2]}', '{"path": "b.py"}'], "\n I look at both. \n"
    ),
}
OTHER = {
    "another argument": called(['{"path": "a.py", "lines": [1, 3]}', '{"path": "b.py"}']),
    "another text": called(['{"path": "a.py", "lines": [1, 2]}', '{"path": "b.py"}'], "I look at one."),
    "a call less": called(['{"path": "a.py", "lines": [1, 2]}']),
    "calls in another order": called(['{"path": "b.py"}', '{"path": "a.py", "lines": [1, 2]}']),
    "no calls": {"role": "assistant", "content": "I look at both."},
}


@pytest.mark.parametrize("back", SAME.values(), ids=SAME.keys())
def test_what_means_the_same_keeps_its_tokens(toy: ServedModel, back: dict[str, Any]) -> None:
    talk = Talk(fresh(toy), REPLY)
    talk.ask(ASKED)
    talk.ask([*ASKED, back, NEXT])
    assert talk.faithful(REPLY)


@pytest.mark.parametrize("back", OTHER.values(), ids=OTHER.keys())
def test_what_means_something_else_is_read_as_it_is_written(toy: ServedModel, back: dict[str, Any]) -> None:
    talk, stranger = Talk(fresh(toy), REPLY), Talk(fresh(toy))
    talk.ask(ASKED)
    for one in (talk, stranger):
        one.ask([*ASKED, back, NEXT])
    assert not talk.faithful(REPLY)
    assert talk.prompt() == stranger.prompt()


@pytest.mark.parametrize(
    ("written", "schema", "kept"),
    [
        (False, {"all": {"type": "boolean", "default": False}}, True),
        ({"b": 1, "a": []}, {"all": {"default": {"a": [], "b": 1}}}, True),
        (True, {"all": {"type": "boolean", "default": False}}, False),
        (0, {"all": {"type": "boolean", "default": False}}, False),
        (False, {"all": {"type": "boolean"}}, False),
        (False, {}, False),
        (False, {"all": True}, False),
    ],
)
def test_an_argument_that_is_its_default_may_be_left_out(
    toy: ServedModel, written: Any, schema: dict[str, Any], kept: bool
) -> None:
    """Claude Code adds `replace_all: false` to the edits that it sends back."""
    parameters = {"type": "object", "properties": {"path": {"type": "string"}, **schema}}
    tools = [{"type": "function", "function": {"name": "look", "parameters": parameters}}]
    reply = 'I look.\n<tool_call>\n{"name": "look", "arguments": {"path": "a.py"}}\n</tool_call>'
    talk = Talk(fresh(toy), reply)
    talk.ask(ASKED, tools=tools)
    back = called([json.dumps({"all": written, "path": "a.py"})], "I look.")
    talk.ask([*ASKED, back, NEXT], tools=tools)
    assert talk.faithful(reply) is kept


def test_a_default_of_what_is_required_is_an_argument_like_another(toy: ServedModel) -> None:
    parameters = {"type": "object", "properties": {"n": {"default": 1}}, "required": ["n"]}
    tools = [{"type": "function", "function": {"name": "look", "parameters": parameters}}]
    reply = '<tool_call>\n{"name": "look", "arguments": {}}\n</tool_call>'
    talk = Talk(fresh(toy), reply)
    talk.ask(ASKED, tools=tools)
    talk.ask([*ASKED, called(['{"n": 1}'], None), NEXT], tools=tools)
    assert not talk.faithful(reply)


def test_thoughts_may_be_missing_where_the_template_would_keep_them(toy: ServedModel) -> None:
    reply = "<think>\nHm.\n</think>\n\nFour."
    for template, choices, kept in (
        (TEMPLATE, {}, True),
        (FORGETS, {}, False),
        (FORGETS, {"preserve_thinking": True}, True),
    ):
        model = fresh(toy, template, **choices)
        assert model.thinking.drops_earlier is (template is FORGETS)
        talk = Talk(model, reply)
        talk.ask(ASKED)
        talk.ask([*ASKED, {"role": "assistant", "content": "Four."}, NEXT])
        assert talk.faithful(reply) is kept
        other = Talk(fresh(toy, template, **choices), reply)
        other.ask(ASKED)
        other.ask([*ASKED, {"role": "assistant", "content": "<think>Ha.</think>Four."}, NEXT])
        assert not other.faithful(reply), "other thoughts are other words"


def test_every_turn_goes_on_from_the_tokens_of_all_before(toy: ServedModel) -> None:
    replies = [" One. \n", "<think>\nTwo?\n</think>\n\nTwo.", REPLY]
    talk = Talk(fresh(toy), *replies)
    messages: list[Any] = list(ASKED)
    for turn, reply in enumerate(replies):
        message = talk.ask(messages)
        if turn:
            assert talk.faithful(replies[turn - 1])
        back = {"role": "assistant", "content": (message["content"] or "").strip()}
        if message.get("tool_calls"):
            back["tool_calls"] = message["tool_calls"]
        messages += [back, NEXT]
        assert reply
    talk.ask(messages)
    assert talk.faithful(REPLY)


def test_places_to_resume_at_are_found_behind_a_reply_of_another_length(toy: ServedModel) -> None:
    """Messages start at `<|im_start|>`, wherever the reply before them now ends."""
    model = fresh(toy)
    first = chat_prompt(model, ChatPrompt(ASKED))
    model.remember_reply("", first.answered or "", list(b" \n\n Four, and not five. \n\n\n"))
    back = {"role": "assistant", "content": "Four, and not five."}
    messages = [*ASKED, back, NEXT, back, NEXT]
    told = chat_prompt(model, ChatPrompt(messages))
    begin = model.vocabulary.pieces.index(b"<|im_start|>")
    assert len(told.tokens) > len(
        chat_prompt(fresh(toy), ChatPrompt([*ASKED, back, NEXT, back, NEXT])).tokens
    )
    assert len(told.hints.message_starts) >= 4
    assert {int(told.tokens[place]) for place in told.hints.message_starts} == {begin}


def test_it_can_be_switched_off_and_keys_are_kept_apart(toy: ServedModel) -> None:
    back = {"role": "assistant", "content": "Four."}
    off = Talk(fresh(toy, literal=True), " Four. ")
    off.ask(ASKED)
    off.ask([*ASKED, back, NEXT])
    assert not off.faithful(" Four. ")
    talk = Talk(fresh(toy), " Four. ")
    talk.ask(ASKED, key="me")
    talk.ask([*ASKED, back, NEXT], key="you")
    assert not talk.faithful(" Four. ")


def test_what_is_remembered_is_bounded() -> None:
    history = History(replies=3)
    for n in range(10):
        history.remember("", "x" * n, Said(str(n), np.zeros(1, np.int32)))
    assert [length for length, _ in history.answers("", "x" * 20)] == [7, 8, 9]
    small = History(tokens=5)
    for n in range(10):
        small.remember("", "x" * n, Said(str(n), np.zeros(2, np.int32)))
    assert [length for length, _ in small.answers("", "x" * 20)] == [8, 9]
    many = History()
    for n in range(9):
        many.remember("", "x", Said(str(n), np.zeros(1, np.int32)))
    assert [said.text for said in many.answers("", "xy")[0][1]] == ["8", "7", "6", "5"]


word = st.text(alphabet="abcdef .,", min_size=1, max_size=12)
arguments = st.dictionaries(st.sampled_from(["path", "old", "new"]), word | st.integers(0, 9), max_size=3)
blanks = st.text(alphabet=" \n", max_size=3)


def following(model: ServedModel, text: str, calls: list[dict[str, Any]]) -> list[int]:
    """The prompt of a request in which the reply comes back like this."""
    back = called([json.dumps(one, indent=1, sort_keys=True) for one in calls], text)
    if not calls:
        del back["tool_calls"]
    return list(map(int, chat_prompt(model, ChatPrompt([*ASKED, back, NEXT], TOOLS)).tokens))


talks = st.tuples(word, st.lists(arguments, max_size=2), blanks, blanks)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(talks, st.booleans())
def test_same_and_other_are_told_apart_whatever_is_said(
    toy: ServedModel, talk: tuple[str, list[dict[str, Any]], str, str], by_text: bool
) -> None:
    text, calls, before, behind = talk
    model = fresh(toy)
    written = "".join(
        f'\n<tool_call>\n{{"name": "look", "arguments": {json.dumps(one)}}}\n</tool_call>' for one in calls
    )
    reply = f"{text}{written}"
    first = chat_prompt(model, ChatPrompt(ASKED, TOOLS))
    model.remember_reply("", first.answered or "", list(reply.encode()))
    begun = [*map(int, first.tokens), *reply.encode()]
    assert following(model, f"{before}{text.strip()}{behind}", calls)[: len(begun)] == begun
    if calls and not by_text:
        other = (text, [{**calls[0], "path": "changed!"}, *calls[1:]])
    else:
        other = (f"{text.strip()}!", calls)
    assert following(model, *other) == following(fresh(toy), *other)
