"""The request log is bounded and shows a request to its own tenant only."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from headstart.api.request_log import (
    Conversation,
    LoggedReply,
    LoggedRequest,
    RequestLog,
    describe_reply,
    logged_reply,
)
from headstart.prefix.report import CacheReport
from headstart.serving.models import ServedModel
from tests.api.served import client_for, served_toy

REPORT = CacheReport(10, 4, 4, 0, 6)


def entry(name: str, chars: int = 0, tenant: str = "") -> LoggedRequest:
    talk = Conversation([], None, {}, chars) if chars else None
    return LoggedRequest(name, tenant, (LoggedReply(REPORT, 0, "", ""),), talk)


def test_only_the_newest_are_kept() -> None:
    log = RequestLog(max_requests=3)
    for name in "abcde":
        log.put(entry(name))
    assert [name for name in "abcde" if log.get(name, "")] == ["c", "d", "e"]


def test_conversations_are_bounded_in_characters() -> None:
    log = RequestLog(max_chars=100)
    log.put(entry("a", 60))
    log.put(entry("b", 60))
    assert log.get("a", "") is None
    assert log.get("b", "") is not None
    log.put(entry("huge", 1000))
    assert log.get("huge", "") is None


def test_other_tenants_see_nothing() -> None:
    log = RequestLog()
    log.put(entry("a", tenant="one"))
    assert log.get("a", "one") is not None
    assert log.get("a", "") is None


def test_all_of_a_tenants_requests_are_listed_in_order(toy: ServedModel) -> None:
    client = client_for(toy)
    for owner, prompt in (("one", "a"), ("two", "b"), ("one", "a longer prompt")):
        body = {"prompt": prompt, "max_tokens": 1}
        assert client.post("/v1/completions", json=body, headers={"x-tenant": owner}).status_code == 200
    found = client.get("/v1/headstart/requests", headers={"x-tenant": "one"}).json()
    assert [reply["prompt_tokens"] for one in found["data"] for reply in one["replies"]] == [1, 15]
    known = client.get(f"/v1/headstart/requests/{found['data'][1]['id']}", headers={"x-tenant": "one"}).json()
    assert known["replies"][0].items() >= found["data"][1]["replies"][0].items()


@pytest.fixture(scope="module")
def toy() -> Iterator[ServedModel]:
    with served_toy() as model:
        yield model


@pytest.mark.parametrize("changed", [0, 1, 2, 3])
def test_message_of_the_divergence_is_found(toy: ServedModel, changed: int) -> None:
    assert toy.template is not None
    messages = [
        {"role": role, "content": f"grüße nummer {i} " * 4}
        for i, role in enumerate(("system", "user", "assistant", "user"))
    ]
    other = [dict(message) for message in messages]
    other[changed]["content"] += "X"
    text = toy.template.render(messages)
    one, two = (toy.tokenize_prompt(t) for t in (text, toy.template.render(other)))
    at = int(np.argmax(one[: min(len(one), len(two))] != two[: min(len(one), len(two))]))
    reply = logged_reply(toy, one, CacheReport(len(one), at, at, 0, len(one) - at))
    shown = describe_reply(toy, reply, Conversation(messages, None, {}, len(text)))
    assert shown["divergence_message"] == changed
    assert text.encode().decode().find(shown["text_before"] + shown["text_after"]) >= 0
    assert shown["text_before"].endswith(f"grüße nummer {changed} "[-8:])


def test_whole_prompt_restored_has_nothing_after_it(toy: ServedModel) -> None:
    prompt = toy.tokenize_prompt("some prompt")
    reply = logged_reply(toy, prompt, CacheReport(len(prompt), len(prompt), len(prompt), 0, 0))
    assert (reply.text_before, reply.text_after) == ("some prompt", "")
    assert describe_reply(toy, reply, None)["divergence_message"] is None
