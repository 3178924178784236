"""Changes that look like one cause and are another."""

from __future__ import annotations

from typing import Any

import pytest

from headstart.blame.exchange import Dialect, Exchange, Reply, ToolCall
from headstart.blame.finding import Finding
from headstart.blame.verdict import judge

LONG = "Every rule counts, and every rule is short.\n" * 12


def chat(
    system: str, *messages: tuple[str, Any], tools: list[dict[str, Any]] | None = None
) -> dict[str, Any]:
    told = [
        {"role": "system", "content": system},
        *({"role": role, "content": text} for role, text in messages),
    ]
    return {"model": "m", "messages": told} | ({"tools": tools} if tools else {})


def verdict(before: dict[str, Any], after: dict[str, Any], reply: Reply | None = None) -> Finding | None:
    sent = [
        Exchange(1, 0.0, Dialect.OPENAI_CHAT, "/v1/chat/completions", before, reply or Reply()),
        Exchange(2, 1.0, Dialect.OPENAI_CHAT, "/v1/chat/completions", after),
    ]
    return judge(sent)[1].finding


def of_system(before: str, after: str) -> str:
    turn = [
        ("user", "Please look at the belt and tell what is wrong with it."),
        ("assistant", "It stands."),
        ("user", "Go on."),
    ]
    found = verdict(chat(before, turn[0]), chat(after, *turn))
    assert found is not None
    return found.cause


def of_result(before: str, after: str) -> str:
    turn = [("user", "Please look at the belt and tell what is wrong with it."), ("assistant", "I look.")]
    more = [("assistant", "It stands."), ("user", "Go on.")]
    found = verdict(chat(LONG, *turn, ("tool", before)), chat(LONG, *turn, ("tool", after), *more))
    assert found is not None
    return found.cause


@pytest.mark.parametrize(
    ("before", "after", "cause"),
    [
        ("now 14:31:05", "now 14:31:06", "TIMESTAMP"),
        ("now 2:31 p.m.", "now 2:32 p.m.", "TIMESTAMP"),
        ("on 30 November 2026", "on 1 December 2026", "DATE_OR_CWD"),
        ("on 30.11.2026", "on 01.12.2026", "DATE_OR_CWD"),
        ("on Monday", "on Tuesday", "DATE_OR_CWD"),
        ("in /home/mia/belt", "in /home/mia/desk", "DATE_OR_CWD"),
        (r"in C:\belt", r"in C:\desk", "DATE_OR_CWD"),
        ("key 3fa85f64-5717-4562-b3fc-2c963f66afa6", "key 9b2d41aa-0c1e-4f57-8a90-7712aa03bd5e", "RANDOM_ID"),
        ("hash 4f81a2b", "hash 90bc1d7", "RANDOM_ID"),
        ("use 40% of it", "use 41% of it", "COUNTER"),
        ("the belt is red", "the belt is blue", "UNKNOWN"),
        ("release alpha", "release gamma", "UNKNOWN"),
        ("model one-small", "model two-large", "UNKNOWN"),
        ("tabs\tare", "tabs are", "WHITESPACE_DRIFT"),
        ("caf\u00e9", "cafe\u0301", "WHITESPACE_DRIFT"),
    ],
)
def test_words_of_a_system_prompt(before: str, after: str, cause: str) -> None:
    assert of_system(f"{LONG}{before}\n{LONG}", f"{LONG}{after}\n{LONG}") == cause


@pytest.mark.parametrize(
    ("before", "after", "cause"),
    [
        ("limit = 40", "limit = 41", "HISTORY_REWRITTEN"),
        ("40 tokens left", "31 tokens left", "TOKEN_BUDGET"),
        ("used 40 of 90", "used 41 of 90", "COUNTER"),
        ("see belt.py:10:22 there", "see belt.py:10:25 there", "HISTORY_REWRITTEN"),
        ("ratio 16.90", "ratio 16.95", "HISTORY_REWRITTEN"),
        ("in /home/mia/belt", "in /home/mia/desk", "HISTORY_REWRITTEN"),
        ("cwd: /home/mia/belt", "cwd: /home/mia/desk", "DATE_OR_CWD"),
        ("a " * 400, "[removed to save room]", "PRUNED_OR_COMPACTED"),
        ("a " * 400, "b " * 380, "HISTORY_REWRITTEN"),
    ],
)
def test_words_of_a_tool_result(before: str, after: str, cause: str) -> None:
    assert (
        of_result(
            f"line\n{before}\nend" if len(before) < 99 else before,
            f"line\n{after}\nend" if len(before) < 99 else after,
        )
        == cause
    )


def test_a_date_after_the_git_block_is_a_date() -> None:
    text = LONG + "gitStatus:\nCurrent branch: main\nStatus:\n(clean)\n\nToday's date: 2026-11-{}\n"
    assert of_system(text.format(29), text.format(30)) == "DATE_OR_CWD"


def test_a_status_without_a_repository_is_none() -> None:
    assert of_system(LONG + "Light: M on", LONG + "Light: D off") == "UNKNOWN"


def tool(name: str, **properties: Any) -> dict[str, Any]:
    parameters = {"type": "object", "properties": properties}
    return {"type": "function", "function": {"name": name, "description": "x", "parameters": parameters}}


TURNS = [
    ("user", "Please look at the belt and tell what is wrong."),
    ("assistant", "It stands."),
    ("user", "Go on."),
]


@pytest.mark.parametrize(
    ("after", "cause"),
    [
        ([tool("b"), tool("a", p=1, q=2)], "TOOLS_REORDERED"),
        ([tool("a", q=2, p=1), tool("b")], "KEY_ORDER"),
        ([tool("a", p=1, q="text"), tool("b")], "TOOLS_CHANGED"),
        ([tool("a", p=1, q=2)], "TOOLS_CHANGED"),
        ([tool("a", p=1, q=2), tool("b"), tool("c")], "TOOLS_CHANGED"),
        ([tool("b"), tool("a", q=2, p=1)], "TOOLS_CHANGED"),
        (None, "TOOLS_CHANGED"),
    ],
)
def test_tools(after: list[dict[str, Any]] | None, cause: str) -> None:
    before = [tool("a", p=1, q=2), tool("b")]
    found = verdict(chat(LONG, TURNS[0], tools=before), chat(LONG, *TURNS, tools=after))
    assert found is not None
    assert found.cause == cause


def test_order_of_a_list_that_is_none_of_a_set_is_content() -> None:
    pair = [[tool("a", p={"examples": order}), tool("b")] for order in (["x", "y"], ["y", "x"])]
    found = verdict(chat(LONG, TURNS[0], tools=pair[0]), chat(LONG, *TURNS, tools=pair[1]))
    assert found is not None
    assert found.cause == "TOOLS_CHANGED"


@pytest.mark.parametrize(
    ("reply", "words"),
    [
        (Reply("It  stands."), "WHITESPACE_DRIFT"),
        (Reply("It stands.\n"), "WHITESPACE_DRIFT"),
        (Reply("It stands.", thinking="hm"), "THINKING_STRIPPED"),
        (Reply("It stood."), "HISTORY_REWRITTEN"),
        (Reply("It stands."), None),
        (Reply(), None),
        (Reply("\n"), None),
    ],
)
def test_a_reply_that_came_back(reply: Reply, words: str | None) -> None:
    found = verdict(chat(LONG, TURNS[0]), chat(LONG, *TURNS), reply)
    assert (found and found.cause) == words


@pytest.mark.parametrize("sent", ["", "{}"])
def test_a_call_without_arguments_may_come_back_as_an_empty_object(sent: str) -> None:
    after = chat(LONG, *TURNS)
    call = {"id": "c", "type": "function", "function": {"name": "stop", "arguments": "{}"}}
    after["messages"][2] = {"role": "assistant", "content": None, "tool_calls": [call]}
    assert verdict(chat(LONG, TURNS[0]), after, Reply(calls=(ToolCall("c", "stop", sent),))) is None


def test_a_reply_that_is_not_sent_back_is_not_compared() -> None:
    after = chat(LONG, TURNS[0], ("user", "Are you there?"))
    assert verdict(chat(LONG, TURNS[0]), after, Reply("Half an ans")) is None
