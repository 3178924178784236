"""The mender knows each conversation, and sends the client's own bytes where nothing was to be repaired."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from headstart.blame.exchange import Dialect, Reply, ToolCall
from headstart.blame.mending import Mender, Mending
from headstart.blame.proxy.passing import Passing
from headstart.blame.proxy.wire import Head
from headstart.blame.repairs import REPAIRS


def passing(**headers: str) -> Passing:
    lines = tuple((name.replace("_", "-").encode(), value.encode()) for name, value in headers.items())
    head = Head(b"1.1", lines, True, method=b"POST", target=b"/v1/messages")
    return Passing(head, "/v1/messages", "", Dialect.ANTHROPIC)


def request(first: str, *names: str, more: tuple[Any, ...] = (), system: str = "s") -> bytes:
    messages = [{"role": "user", "content": first}, *more]
    tools = [{"name": name} for name in names]
    return json.dumps({"system": system, "tools": tools, "messages": messages}, indent=1).encode()


def names(body: bytes) -> list[str]:
    return [tool["name"] for tool in json.loads(body)["tools"]]


def test_each_conversation_has_an_order_of_its_own() -> None:
    mender = Mender(["tools"])
    assert mender.mended(passing(), request("one", "a", "b")) == request("one", "a", "b")
    assert mender.mended(passing(), request("two", "b", "a")) == request("two", "b", "a")
    assert names(mender.mended(passing(), request("one", "b", "a", "c"))) == ["a", "b", "c"]
    assert names(mender.mended(passing(), request("two", "a", "c", "b"))) == ["b", "a", "c"]


def test_what_was_repaired_is_noted_and_recorded_as_sent() -> None:
    mender = Mender(["tools"])
    mender.mended(passing(), request("one", "a", "b"))
    one = passing()
    one.sent(request("one", "b", "a"))
    sent = mender.mended(one, request("one", "b", "a"))
    assert one.notes == ["fix tools: put 2 of 2 tools back in their first order"]
    assert b"".join(one.request) == sent
    assert b", " not in sent


def test_calls_are_learnt_from_replies() -> None:
    mender = Mender(["arguments"])
    call = ToolCall("t1", "ls", '{"b":1,"a":2}')
    mender.learn(Reply(calls=(call,)))
    block = {"type": "tool_use", "id": "t1", "name": "ls", "input": {"a": 2, "b": 1}}
    sent = mender.mended(passing(), request("go", more=({"role": "assistant", "content": [block]},)))
    assert b'"input":{"b":1,"a":2}' in sent


def test_a_request_waits_until_the_reply_before_it_is_learnt_from() -> None:
    mending = Mending(Mender(["arguments"]))
    spoken = {"type": "tool_use", "id": "t1", "name": "ls", "input": {"b": 1, "a": 2}}
    before = passing()
    before.reply_head = Head(b"1.1", ((b"Content-Type", b"application/json"),), True, status=200)
    before.came(json.dumps({"type": "message", "content": [spoken], "stop_reason": "tool_use"}).encode())
    before.finished = True
    block = {**spoken, "input": {"a": 2, "b": 1}}
    sent = request("go", more=({"role": "assistant", "content": [block]},))
    mending.finished(before)
    assert b'"input":{"b":1,"a":2}' in asyncio.run(mending.mend(passing(), sent))
    mending.close()


def test_a_request_on_the_side_is_no_turn() -> None:
    """A title has tools of its own order, or none; the conversation's next turn is not put in that one."""
    mender = Mender(["tools"])
    mender.mended(passing(), request("mend the lamp in the hall, please", "a", "b"))
    asked = [{"role": "user", "content": "mend the lamp"}]
    body = json.dumps({"system": "Write a title of five words.", "messages": asked}).encode()
    assert mender.mended(passing(), body) is body
    later = request("mend the lamp in the hall, please", "b", "a")
    assert names(mender.mended(passing(), later)) == ["a", "b"]


def test_requests_on_the_side_leave_nothing_for_each_other() -> None:
    mender = Mender(["date"])
    for day in (10, 11):
        asked = [{"role": "user", "content": "mend the lamp"}]
        system = f"Write a title of five words.\nToday: 2026-11-{day}"
        body = json.dumps({"system": system, "messages": asked}).encode()
        assert mender.mended(passing(), body) is body


def test_what_it_remembers_does_not_grow() -> None:
    mender = Mender(["tools"])
    for number in range(500):
        mender.mended(passing(), request(f"{number} " * 20, "a", "b"))
    assert len(mender._seen) == 200


def test_a_date_is_kept_from_the_first_turn_on() -> None:
    mender = Mender(["date"])
    for day in range(10, 13):
        body = request("go", system=f"Today: 2026-11-{day}")
        assert json.loads(mender.mended(passing(), body))["system"] == "Today: 2026-11-10"


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[1]", b"\xff", b'"x"', b"{}", b'{"messages": 3}', b'{"messages": [[]]}']
)
def test_what_is_no_request_is_sent_as_it_is(body: bytes) -> None:
    assert Mender(list(REPAIRS)).mended(passing(), body) is body


def test_a_compressed_body_is_sent_as_it_is_and_said() -> None:
    one = passing(content_encoding="zstd")
    assert Mender(["tools"]).mended(one, b"(zstd)") == b"(zstd)"
    assert one.notes == ["fix: a body compressed as zstd is not repaired"]


def test_text_without_a_form_in_utf_8_is_sent_escaped() -> None:
    mender = Mender(["tools"])
    mender.mended(passing(), request("\ud800", "a", "b"))
    assert b"\\ud800" in mender.mended(passing(), request("\ud800", "b", "a"))
