"""Repairs: each does what it says, leaves the rest alone, and never touches what the user said."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headstart.blame.exchange import Dialect, ToolCall
from headstart.blame.repairs import REPAIRS, Seen, dates, named, repair, tools
from headstart.errors import ConfigError

CHAT, ANTHROPIC, RESPONSES = Dialect.OPENAI_CHAT, Dialect.ANTHROPIC, Dialect.OPENAI_RESPONSES
BILLING = "x-anthropic-billing-header: cc_version=2.1.300.3b2; cc_entrypoint=sdk-cli;"
REMINDER = "<system-reminder>\nThe todo list is empty.\n</system-reminder>"
WROTE = '{ "new" : "a",  "old":"\\u0062", "n": 1.0}'


def mended(dialect: Dialect, body: Any, name: str, seen: Seen | None = None) -> tuple[Any, tuple[str, ...]]:
    """After one repair; the body that came in is as it was."""
    before = copy.deepcopy(body)
    after, notes = repair(dialect, body, seen or Seen(), [name])
    assert body == before
    assert (after is body) == (not notes)
    return after, notes


def text(said: str, **more: Any) -> dict[str, Any]:
    return {"type": "text", "text": said, **more}


def user(content: Any) -> dict[str, Any]:
    return {"role": "user", "content": content}


def test_a_billing_block_is_dropped() -> None:
    body = {"system": [text(BILLING), text("You help.", cache_control={})], "messages": [user(BILLING)]}
    after, notes = mended(ANTHROPIC, body, "billing")
    assert after == {"system": [text("You help.", cache_control={})], "messages": [user(BILLING)]}
    assert notes == ("fix billing: dropped the billing line at system[0].text",)


def test_a_billing_line_before_other_text_is_dropped() -> None:
    body = {"messages": [{"role": "system", "content": f"{BILLING}\nYou help."}, user("hi")]}
    after, _ = mended(CHAT, body, "billing")
    assert after["messages"][0]["content"] == "You help."
    assert after["messages"][1] is body["messages"][1]


@pytest.mark.parametrize("said", [f"About {BILLING}", f"Rules\n{BILLING}\n", "", " "])
def test_a_billing_line_elsewhere_is_not(said: str) -> None:
    mended(ANTHROPIC, {"system": said}, "billing")
    assert repair(ANTHROPIC, {"system": said}, Seen(), ["billing"])[1] == ()


def tool(name: str, dialect: Dialect = CHAT) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name}} if dialect is CHAT else {"name": name}


@pytest.mark.parametrize("dialect", [CHAT, ANTHROPIC])
def test_tools_keep_their_first_order_and_new_ones_come_last(dialect: Dialect) -> None:
    seen = Seen(tools=("read", "ls", "edit"))
    body = {"tools": [tool(name, dialect) for name in ("new", "edit", "read")]}
    after, notes = mended(dialect, body, "tools", seen)
    assert tools.names(after) == ("read", "edit", "new")
    assert notes == ("fix tools: put 2 of 3 tools back in their first order",)


def test_tools_in_order_without_names_or_twice_are_left() -> None:
    seen = Seen(tools=("read", "ls"))
    for names in (("read", "ls"), ("read", "new"), ("ls",)):
        mended(ANTHROPIC, {"tools": [{"name": name} for name in names]}, "tools", seen)
        assert repair(ANTHROPIC, {"tools": [{"name": name} for name in names]}, seen, ["tools"])[1] == ()
    for odd in ([{"name": "ls"}, {"name": "ls"}, {"name": "read"}], [{}, {"name": "ls"}], [1], "x", None):
        assert repair(ANTHROPIC, {"tools": odd}, seen, ["tools"])[1] == ()
    web = [{"type": "web_search"}, {"type": "function", "name": "ls"}]
    assert tools.names({"tools": web}) == ("web_search", "ls")


def seen_call(arguments: str = WROTE, *, exact: bool = True) -> Seen:
    return Seen(calls={"call1x0": (ToolCall("call_1x0", "edit", arguments, exact),)})


def chat_call(arguments: Any, id: str = "call_1x0", name: str = "edit") -> dict[str, Any]:
    call = {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}
    return {"messages": [user("go"), {"role": "assistant", "content": None, "tool_calls": [call]}]}


def arguments_of(body: Any) -> Any:
    return body["messages"][1]["tool_calls"][0]["function"]["arguments"]


@pytest.mark.parametrize(
    "replayed", ['{"new":"a","old":"b","n":1}', '{"old":"b","n":1.0,"new":"a","all":false}']
)
@pytest.mark.parametrize("id", ["call_1x0", "call1x0"])
def test_arguments_go_back_as_they_were_generated(replayed: str, id: str) -> None:
    after, notes = mended(CHAT, chat_call(replayed, id), "arguments", seen_call())
    assert arguments_of(after) == WROTE
    assert notes == (
        "fix arguments: messages[1].tool_calls[0].function.arguments is sent as it was generated",
    )


@pytest.mark.parametrize(
    "replayed",
    [WROTE, '{"new":"other","old":"b","n":1}', '{"new":"a","old":"b"}', '{"new":"a","old":"b","n":true}', "",
     '{"new":"a","old":"b","n":1,"force":true}', "[1]", 7, None],
)  # fmt: skip
def test_arguments_that_say_something_else_stay(replayed: Any) -> None:
    assert repair(CHAT, chat_call(replayed), seen_call(), ["arguments"])[1] == ()


def test_another_call_or_what_was_not_seen_as_text_stays() -> None:
    same = '{"new":"a","old":"b","n":1}'
    assert repair(CHAT, chat_call(same, name="write"), seen_call(), ["arguments"])[1] == ()
    assert repair(CHAT, chat_call(same, id="call_2"), seen_call(), ["arguments"])[1] == ()
    assert repair(CHAT, chat_call(same), seen_call(exact=False), ["arguments"])[1] == ()


def test_objects_get_the_order_of_keys_they_were_generated_in() -> None:
    replayed = {"all": False, "old": "b", "n": 1, "new": "a"}
    block = {"type": "tool_use", "id": "call_1x0", "name": "edit", "input": replayed}
    body = {"messages": [user("go"), {"role": "assistant", "content": [text("ok"), block]}]}
    after, _ = mended(ANTHROPIC, body, "arguments", seen_call())
    assert list(after["messages"][1]["content"][1]["input"]) == ["new", "old", "n"]


def test_arguments_in_responses() -> None:
    item = {
        "type": "function_call",
        "call_id": "call_1x0",
        "name": "edit",
        "arguments": '{"new":"a","old":"b","n":1}',
    }
    after, _ = mended(RESPONSES, {"input": [user("go"), item]}, "arguments", seen_call())
    assert after["input"][1]["arguments"] == WROTE


def test_a_reminder_that_moved_is_put_back() -> None:
    before = {"messages": [user([text(REMINDER), text("Do it.", cache_control={})])]}
    said = [user("Do it."), {"role": "assistant", "content": "Done."}, user([text(REMINDER), text("More.")])]
    after, notes = mended(ANTHROPIC, {"messages": said}, "reminder", Seen(before=before))
    assert after["messages"][0]["content"] == [text(REMINDER), text("Do it.")]
    assert after["messages"][2]["content"] == [text("More.")]
    assert notes == ("fix reminder: moved the reminder at messages[2] back to messages[0].content[0]",)


@pytest.mark.parametrize(
    "messages",
    [
        [user([text(REMINDER), text("Do it.")]), user([text(REMINDER), text("More.")])],  # still there
        [user("Do something else."), user([text(REMINDER), text("More.")])],  # rewritten
        [user("Do it."), user([text("More.")])],  # gone, not moved
        [user("Do it."), user([text(REMINDER)])],  # nothing else would be left
        [{"role": "assistant", "content": "Do it."}, user([text(REMINDER), text("More.")])],
        [user("Do it."), user([text(f"I read {REMINDER}"), text("More.")])],  # the user's own words
        [], [1], [user(None)],
    ],
)  # fmt: skip
def test_a_reminder_that_did_not_move_stays(messages: list[Any]) -> None:
    seen = Seen(before={"messages": [user([text(REMINDER), text("Do it.")])]})
    assert repair(ANTHROPIC, {"messages": messages}, seen, ["reminder"])[1] == ()


@pytest.mark.parametrize(
    ("first", "now"),
    [
        ("Current date: 2026-11-30", "Current date: 2026-12-01"),
        ("Today's date: Mon Nov 30 2026", "Today's date: Tue Dec 01 2026"),
        ("It is Monday, November 30, 2026 at 2:31 PM.", "It is Tuesday, December 1, 2026 at 11:02 AM."),
        ("now 2026-11-30T14:31:22Z", "now 2026-11-30T14:31:23Z"),
        ("time: 14:31", "time: 14:32"),
    ],
)
def test_a_date_stays_what_it_first_was(first: str, now: str) -> None:
    body = {"system": f"You help.\n{now}\nBe brief.", "messages": [user(now)]}
    seen = Seen(dated=dates.dated({"system": f"You help.\n{first}\nBe brief."}))
    after, notes = mended(ANTHROPIC, body, "date", seen)
    assert after == {"system": f"You help.\n{first}\nBe brief.", "messages": [user(now)]}
    assert notes == ("fix date: kept the date at system as it first was",)


def test_dates_that_come_twice_or_with_other_words_stay() -> None:
    seen = Seen(dated=dates.dated({"system": "a 2026-11-30\nb 2026-11-30\nb 2026-11-29\nversion 1.2.3"}))
    for system in (
        "c 2026-12-01",
        "b 2026-12-01",
        "b 2026-12-01\nb 2026-12-02",
        "version 1.2.4",
        "a 2026-11-30",
    ):
        assert repair(ANTHROPIC, {"system": system}, seen, ["date"])[1] == ()


def test_names() -> None:
    assert named("") == ("billing", "tools", "arguments", "reminder")
    assert named("date, tools") == ("tools", "date")
    with pytest.raises(ConfigError, match=r"'bill'.*expected some of billing"):
        named("bill")


BLOCKS = st.sampled_from(
    [text(REMINDER), text(BILLING), text("Do it."), text("2026-11-30"), text(""), {"type": "image"}, 7]
)
CONTENT = st.lists(BLOCKS, max_size=4) | st.sampled_from(
    [None, "Do it.", BILLING, REMINDER, "now 2026-12-01"]
)
MESSAGES = st.lists(
    st.fixed_dictionaries(
        {"role": st.sampled_from(["user", "assistant", "system", "tool"]), "content": CONTENT}
    )
    | st.sampled_from([1, None, chat_call('{"n":1,"new":"a","old":"b"}')["messages"][1]]),
    max_size=5,
)
BODIES = st.fixed_dictionaries(
    {"messages": MESSAGES, "system": CONTENT, "tools": st.permutations([tool("a"), tool("b"), {"name": "c"}])}
)


def users_words(body: Any) -> list[Any]:
    """What the user said, in order; reminders are the harness's."""
    said = []
    for message in body["messages"]:
        if isinstance(message, dict) and message.get("role") == "user":
            content = message.get("content")
            blocks = [text(content)] if isinstance(content, str) else content or []
            said += [one for one in blocks if one not in (text(REMINDER), text(""))]
    return said


@given(BODIES, BODIES)
def test_what_the_user_said_never_changes(before: Any, body: Any) -> None:
    calls = seen_call().calls
    seen = Seen(("c", "a", "b"), calls, before, dates.dated({"system": "now 2026-11-30\n2026-11-29"}))
    whole = json.dumps(body)
    after, notes = repair(ANTHROPIC, body, seen, list(REPAIRS))
    assert json.dumps(body) == whole
    assert users_words(after) == users_words(body)
    assert (after is body) == (not notes)
    if notes:
        again, _ = repair(ANTHROPIC, after, seen, list(REPAIRS))
        assert users_words(again) == users_words(body)


FIELDS = st.sampled_from(["messages", "input", "tools", "content", "role", "system", "text"])
ANYTHING = st.recursive(
    st.none() | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(FIELDS, inner),
)


@given(ANYTHING)
def test_no_body_raises_and_without_a_match_it_is_the_same_object(body: Any) -> None:
    after, notes = repair(CHAT, body, Seen(("a",), seen_call().calls, body), list(REPAIRS))
    assert after is body or notes
