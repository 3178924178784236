"""Results of tools without a call, in odd places and in any order, in each dialect."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest
from fastapi.testclient import TestClient
from hypothesis import example, given, settings
from hypothesis import strategies as st

from headstart.api.tool_results import CHAT, MESSAGES, OLLAMA, REORDERED, RESPONSES, matched
from headstart.chat.template import ChatTemplate
from headstart.errors import RequestError
from headstart.serving.models import ServedModel
from tests.api.served import Scripted, client_for, served_toy
from tests.api.test_calls import TEMPLATE
from tests.api.test_openai_stream import said

USER = {"role": "user", "content": "Look at both."}
SYSTEM = {"role": "system", "content": "Two turns left."}
ANSWER = {"role": "assistant", "content": "Both are empty."}


def calling(*ids: str | None, names: Sequence[str] = ()) -> dict[str, Any]:
    """An assistant message that makes calls; those of None have no id."""
    named = names or ["look"] * len(ids)
    calls: list[dict[str, Any]] = []
    for id_, name in zip(ids, named, strict=True):
        call: dict[str, Any] = {"type": "function", "function": {"name": name, "arguments": "{}"}}
        calls.append(call if id_ is None else {"id": id_, **call})
    return {"role": "assistant", "content": None, "tool_calls": calls}


def result(id_: str | None, words: str = "", **more: Any) -> dict[str, Any]:
    known = {} if id_ is None else {"tool_call_id": id_}
    return {"role": "tool", **known, "content": words or f"of {id_}", **more}


def contents(messages: Sequence[dict[str, Any]]) -> list[Any]:
    return [message["content"] for message in messages if message["role"] == "tool"]


def places(messages: Sequence[Any]) -> list[str]:
    return [f"messages[{index}]" for index in range(len(messages))]


@pytest.mark.parametrize(
    ("matching", "messages"),
    [
        (CHAT, [USER, calling("a", "b"), result("b"), result("a"), ANSWER, USER]),
        (CHAT, [USER, calling("a"), result("a"), calling("a"), result("a")]),
        (CHAT, [calling("a", "b"), result("b"), USER]),
        (MESSAGES, [USER, calling("a"), SYSTEM, result("a")]),
        (MESSAGES, [USER, calling("a"), USER, result("a")]),
        (MESSAGES, [USER, calling("a"), ANSWER, result("a")]),
        (RESPONSES, [calling("a"), USER, ANSWER, USER, result("a")]),
        (RESPONSES, [calling("a"), result("a"), result("a")]),
        (OLLAMA, [calling(None, None), result(None), result(None)]),
        (OLLAMA, [calling("x"), result("y")]),
        (OLLAMA, [calling(None, names=["look"]), USER, result(None, tool_name="view")]),
    ],
)
def test_what_the_dialects_own_server_takes_is_taken(matching: Any, messages: list[Any]) -> None:
    arranged, _ = matched(messages, places(messages), matching)
    assert [one["role"] for one in arranged] == [one["role"] for one in messages]


@pytest.mark.parametrize(
    ("matching", "messages", "words"),
    [
        (CHAT, [USER, result("a")], "messages[1]: the assistant message before"),
        (CHAT, [USER, calling("a"), result("b")], "no call with the id 'b'"),
        (CHAT, [USER, calling("a"), USER, result("a")], "messages[3]"),
        (CHAT, [USER, calling("a"), SYSTEM, result("a")], "messages[3]"),
        (CHAT, [USER, calling("a"), ANSWER, result("a")], "messages[3]"),
        (CHAT, [USER, calling("a"), result("a"), result("a")], "has a result already"),
        (CHAT, [USER, calling("a"), result(None)], "tool_call_id"),
        (CHAT, [USER, calling(None), result(None)], "tool_call_id"),
        (CHAT, [USER, calling(None), result("call00000")], "no call with the id"),
        (MESSAGES, [USER, calling("a"), result("a"), calling("b"), result("a")], "messages[4]"),
        (MESSAGES, [USER, calling("a"), USER, ANSWER, result("a")], "no tool_use block with the id 'a'"),
        (MESSAGES, [USER, calling("a"), result("a"), result("a")], "has a result already"),
        (RESPONSES, [USER, result("a"), calling("a")], "previous_response_id"),
        (OLLAMA, [USER, result(None)], "messages[1]: no call"),
        (OLLAMA, [USER, calling(None), result(None), result(None)], "messages[3]: no call"),
    ],
)
def test_a_result_without_a_call_says_what_to_change(matching: Any, messages: list[Any], words: str) -> None:
    with pytest.raises(RequestError) as caught:
        matched(messages, places(messages), matching)
    assert words in str(caught.value)
    assert caught.value.status == 400
    assert caught.value.param and caught.value.param.startswith("messages[")


def test_results_stand_in_the_order_of_their_calls() -> None:
    asked = [USER, calling("a", "b", "c"), result("c"), result("a"), result("b"), ANSWER]
    for matching in (CHAT, MESSAGES, RESPONSES, OLLAMA):
        arranged, notes = matched(asked, places(asked), matching)
        assert contents(arranged) == ["of a", "of b", "of c"]
        assert notes == (REORDERED,)
        _, nothing = matched(arranged, places(arranged), matching)
        assert nothing == ()


def test_ollamas_results_get_the_id_and_name_of_their_call() -> None:
    asked = [calling(None, None, None, names=["look", "find", "look"])]
    asked += [result(None, "1", tool_name="look"), result(None, "2", tool_name="look")]
    asked.append(result(None, "3", tool_name="find"))
    arranged, _ = matched(asked, places(asked), OLLAMA)
    ids = [call["id"] for call in arranged[0]["tool_calls"]]
    assert len(set(ids)) == 3 and all(len(one) == 9 for one in ids), "as Mistral's templates want them"
    told = [(one["tool_call_id"], one["name"], one["content"]) for one in arranged[1:]]
    assert told == [(ids[0], "look", "1"), (ids[1], "find", "3"), (ids[2], "look", "2")]


def test_what_was_sent_is_not_changed() -> None:
    asked = [calling(None), result(None)]
    matched(asked, places(asked), OLLAMA)
    assert asked == [calling(None), result(None)]


ids = st.sampled_from(["a", "b", "c", None])
spoken = st.one_of(
    st.sampled_from([USER, SYSTEM, ANSWER]),
    st.lists(ids, min_size=1, max_size=3).map(lambda chosen: calling(*chosen)),
    ids.map(result),
)


@example([calling("c", "a", "c"), result("a"), result("b")], OLLAMA)
@settings(max_examples=200, deadline=None)
@given(st.lists(spoken, max_size=8), st.sampled_from([CHAT, MESSAGES, RESPONSES, OLLAMA]))
def test_whatever_comes_is_refused_or_only_put_in_order(messages: list[Any], matching: Any) -> None:
    try:
        arranged, _ = matched(messages, places(messages), matching)
    except RequestError:
        return
    assert [one["role"] for one in arranged] == [one["role"] for one in messages]
    assert sorted(contents(arranged)) == sorted(contents(messages))
    assert matched(arranged, places(arranged), matching) == (arranged, ()), "once is enough"


@pytest.fixture(scope="module")
def toy() -> Iterator[ServedModel]:
    with served_toy() as model:
        yield replace(model, template=ChatTemplate(TEMPLATE, bos="", eos=""))


@pytest.fixture(scope="module")
def client(toy: ServedModel) -> TestClient:
    return client_for(replace(toy, scheduler=Scripted(lambda request: said("Yes."))))


def message_of(answer: Any) -> str:
    """The words of an error, in whichever shape its dialect has."""
    assert answer.status_code == 400, answer.text
    body = answer.json()
    error = body["error"]
    if answer.request.url.path.startswith("/api/"):
        assert isinstance(error, str)
        return error
    if answer.request.url.path.startswith("/v1/messages"):
        assert (body["type"], error["type"]) == ("error", "invalid_request_error")
    else:
        assert error["type"] == "invalid_request_error" and error["param"]
    return str(error["message"])


OUTPUT = {"type": "function_call_output", "call_id": "a", "output": "x"}
RESULT = {"type": "tool_result", "tool_use_id": "a", "content": "x"}
USE = {"type": "tool_use", "id": "a", "name": "look", "input": {}}


def test_every_dialect_refuses_in_its_own_shape(client: TestClient) -> None:
    for path in ("/v1/chat/completions", "/tokenize", "/apply-template"):
        assert "messages[1]" in message_of(client.post(path, json={"messages": [USER, result("a")]}))
    assert "messages[1]" in message_of(client.post("/api/chat", json={"messages": [USER, result(None)]}))
    assert "input[1]" in message_of(client.post("/v1/responses", json={"input": [USER, OUTPUT]}))
    for path in ("/v1/messages", "/v1/messages/count_tokens"):
        body = {"max_tokens": 1, "messages": [USER, {"role": "user", "content": [RESULT]}]}
        assert "messages[1].content[0]" in message_of(client.post(path, json=body))


@pytest.mark.parametrize(
    ("role", "block", "words"),
    [
        ("assistant", RESULT, "in a user message"),
        ("system", RESULT, "in a user message"),
        ("user", USE, "in an assistant message"),
        ("user", {"type": "thinking", "thinking": "x"}, "in an assistant message"),
    ],
)
def test_blocks_of_another_role_are_told_where_they_stand(
    client: TestClient, role: str, block: Any, words: str
) -> None:
    calls = {"role": "assistant", "content": [USE]}
    body = {"max_tokens": 1, "messages": [USER, calls, {"role": role, "content": [block]}]}
    assert words in message_of(client.post("/v1/messages", json=body))


def test_an_output_behind_a_stored_call_is_taken_and_places_count_what_was_sent(client: TestClient) -> None:
    call = {"type": "function_call", "call_id": "a", "name": "look", "arguments": "{}"}
    first = client.post("/v1/responses", json={"input": [USER, call]}).json()
    body = {"previous_response_id": first["id"], "input": [OUTPUT]}
    assert client.post("/v1/responses", json=body).status_code == 200
    body["input"] = [OUTPUT, {**OUTPUT, "call_id": "b"}]
    assert "input[1]: no item before it is a call" in message_of(client.post("/v1/responses", json=body))


@pytest.mark.parametrize("role", ["robot", "function", "", None, 3, ["user"]])
def test_unknown_roles_are_told_the_known_ones(client: TestClient, role: Any) -> None:
    odd = [USER, {"role": role, "content": "x"}]
    for path, known in (("/v1/chat/completions", "developer, user"), ("/api/chat", "developer, user")):
        words = message_of(client.post(path, json={"messages": odd}))
        assert known in words and "messages[1].role" in words
    body = {"messages": odd, "max_tokens": 1}
    assert "user, assistant or system" in message_of(client.post("/v1/messages", json=body))
    answer = client.post("/v1/responses", json={"input": odd})
    assert "input[1].role must be one of user" in message_of(answer)


def test_developer_and_ollamas_capitals_are_taken(client: TestClient) -> None:
    for path in ("/v1/chat/completions", "/api/chat"):
        body = {"messages": [{"role": "developer", "content": "Be kind."}, USER]}
        assert client.post(path, json=body).status_code == 200
    loud = {"messages": [{"role": "User", "content": "Hello"}]}
    assert client.post("/api/chat", json=loud).status_code == 200
    assert "messages[0].role" in message_of(client.post("/v1/chat/completions", json=loud))
