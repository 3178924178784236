"""Ollama's API on the toy model."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from fastapi.testclient import TestClient
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headstart.api.ollama_stream import Calls
from headstart.chat.replies.events import ArgumentsDelta, CallEnd, CallStart, TextDelta, ThinkingDelta
from headstart.serving.models import ServedModel
from tests.api.served import CONTEXT, client_for, served_toy

TEXT = "Hello there, who are you and what do you do all day?"
HELLO = [{"role": "user", "content": TEXT}]
GREEDY = {"temperature": 0, "num_predict": 8}
LONG = {"temperature": 0, "num_predict": 40}


@pytest.fixture(scope="module")
def model() -> Iterator[ServedModel]:
    with served_toy() as one:
        yield one


@pytest.fixture(scope="module")
def client(model: ServedModel) -> TestClient:
    return client_for(model)


def ask(client: TestClient, path: str = "/api/chat", **fields: Any) -> dict[str, Any]:
    prompt = {"messages": HELLO} if path == "/api/chat" else {"prompt": TEXT}
    answer = client.post(path, json={"model": "toy", "options": GREEDY, "stream": False, **prompt, **fields})
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def lines(client: TestClient, path: str = "/api/chat", **fields: Any) -> list[dict[str, Any]]:
    answer = client.post(path, json={"model": "toy", "options": GREEDY, **fields})
    assert answer.headers["content-type"].startswith("application/x-ndjson")
    return [json.loads(line) for line in answer.text.splitlines()]


def refused(client: TestClient, path: str = "/api/chat", **fields: Any) -> str:
    answer = client.post(path, json={"model": "toy", "messages": HELLO, "prompt": "x", **fields})
    assert answer.status_code == 400, answer.text
    assert list(answer.json()) == ["error"]
    return str(answer.json()["error"])


def test_a_chat_and_its_counts(client: TestClient) -> None:
    said = [{"role": "user", "content": "An account is kept of what was read, is it not?"}]
    first, again = ask(client, messages=said), ask(client, messages=said)
    assert first["message"]["role"] == "assistant"
    assert first["message"]["content"] == again["message"]["content"] != ""
    assert (first["done"], first["done_reason"], first["eval_count"]) == (True, "length", 8)
    counted = client.post("/tokenize", json={"messages": said}).json()["count"]
    assert first["prompt_eval_count"] == again["prompt_eval_count"] == counted
    assert again["prompt_eval_cached_count"] == counted
    assert first["total_duration"] > first["prompt_eval_duration"] > 0
    assert first["created_at"].endswith("Z")


def test_a_stream_is_lines_and_is_the_default(client: TestClient) -> None:
    sent = lines(client, messages=HELLO)
    assert [one["done"] for one in sent] == [False] * (len(sent) - 1) + [True]
    assert len(sent) >= 2
    whole = ask(client)
    assert "".join(one["message"]["content"] for one in sent) == whole["message"]["content"]
    assert sent[-1]["message"]["content"] == ""
    assert sent[-1]["prompt_eval_count"] == whole["prompt_eval_count"]
    assert not any("eval_count" in one for one in sent[:-1])


def test_generate_with_the_template_and_without(client: TestClient) -> None:
    whole = ask(client, "/api/generate")["response"]
    assert whole == ask(client)["message"]["content"]
    assert "".join(one["response"] for one in lines(client, "/api/generate", prompt=TEXT)) == whole
    both = [{"role": "system", "content": "Be kind."}, *HELLO]
    system = ask(client, "/api/generate", system="Be kind.")
    assert system["prompt_eval_count"] == ask(client, messages=both)["prompt_eval_count"]
    assert ask(client, "/api/generate", raw=True)["prompt_eval_count"] == len(TEXT)


def test_a_request_without_a_prompt_loads_nothing_and_says_so(client: TestClient) -> None:
    assert ask(client, messages=[])["done_reason"] == "load"
    assert ask(client, "/api/generate", prompt="")["done_reason"] == "load"
    assert ask(client, messages=[], keep_alive=0)["done_reason"] == "unload"
    assert ask(client)["message"]["content"], "the model is there all the same"


def test_calls_and_thinking_in_the_history(client: TestClient) -> None:
    call = {"function": {"name": "look", "arguments": {"path": "a"}}}
    said = [
        *HELLO,
        {"role": "assistant", "content": "I look.", "thinking": "Hm.", "tool_calls": [call]},
        {"role": "tool", "content": "one", "tool_name": "look"},
    ]
    function = {"name": "look", "arguments": '{"path": "a"}'}
    calls = [{"id": "c1", "type": "function", "function": function}]
    as_openai = [
        *HELLO,
        {"role": "assistant", "content": "I look.", "reasoning_content": "Hm.", "tool_calls": calls},
        {"role": "tool", "tool_call_id": "c1", "content": "one"},
    ]
    counted = client.post("/tokenize", json={"messages": as_openai}).json()["count"]
    assert ask(client, messages=said)["prompt_eval_count"] == counted


def test_options_are_honoured_or_named(client: TestClient) -> None:
    text = ask(client, options=LONG)["message"]["content"]
    stop = text[4:6]
    ended = ask(client, options={**LONG, "stop": [stop]})
    assert (ended["message"]["content"], ended["done_reason"]) == (text[: text.index(stop)], "stop")
    one, other = (ask(client, options={"seed": 7, "num_predict": 8})["message"] for _ in range(2))
    assert one == other
    odd = {**GREEDY, "num_ctx": 99, "num_gpu": 1}
    said = ask(client, options=odd, keep_alive="5m", frobnicate=1)["headstart"]["warnings"]
    assert [one.split(":")[0] for one in said] == [
        "options.num_ctx",
        "keep_alive",
        "options.num_gpu",
        "frobnicate",
    ]
    assert "headstart" not in ask(client, options={**GREEDY, "num_ctx": CONTEXT})


def test_json_is_held(client: TestClient) -> None:
    schema = {"type": "object", "properties": {"a": {"type": "boolean"}}, "required": ["a"]}
    schema["additionalProperties"] = False
    said = ask(client, format=schema, options={"temperature": 0, "num_predict": 200})
    assert said["done_reason"] == "stop"
    assert list(json.loads(said["message"]["content"])) == ["a"]
    assert "format must be" in refused(client, format="yaml")
    assert refused(client, format={"type": "nonsense"}).startswith("format cannot be compiled")


@pytest.mark.parametrize(
    ("path", "fields", "words"),
    [
        ("/api/chat", {"messages": 3}, "messages"),
        ("/api/chat", {"messages": [{"content": "x"}]}, "role"),
        ("/api/chat", {"messages": [{"role": "user", "content": "x", "images": ["aa"]}]}, "text only"),
        ("/api/chat", {"messages": [{"role": "assistant", "tool_calls": [{}]}]}, "needs a function"),
        ("/api/chat", {"options": {"temperature": "hot"}}, "options.temperature must be"),
        ("/api/chat", {"options": {"top_k": 1.5}}, "options.top_k must be"),
        ("/api/chat", {"options": {"stop": [""]}}, "options.stop must be"),
        ("/api/chat", {"options": {"num_predict": -3}}, "options.num_predict must be"),
        ("/api/chat", {"messages": [{"role": "user", "content": "long " * CONTEXT}]}, "tokens"),
        ("/api/generate", {"suffix": "x"}, "suffix is not supported"),
        ("/api/generate", {"template": "x"}, "--chat-template"),
        ("/api/generate", {"images": ["x"]}, "text only"),
    ],
)
def test_bad_requests(client: TestClient, path: str, fields: dict[str, Any], words: str) -> None:
    assert words in refused(client, path, **fields)


def test_what_the_server_is(client: TestClient) -> None:
    assert client.get("/api/version").json()["version"]
    assert client.get("/").text == "headstart is running"
    assert client.head("/").status_code == 200
    (named,) = client.get("/api/tags").json()["models"]
    (running,) = client.get("/api/ps").json()["models"]
    assert named["name"] == running["name"] == "toy"
    assert running["context_length"] == CONTEXT
    shown = client.post("/api/show", json={"model": "toy:latest"}).json()
    family = shown["model_info"]["general.architecture"]
    assert shown["model_info"][f"{family}.context_length"] == CONTEXT
    assert "completion" in shown["capabilities"]
    assert client.post("/api/show", json={"model": "other"}).status_code == 404
    for path in ("pull", "embed", "create"):
        answer = client.post(f"/api/{path}", json={"model": "toy"})
        assert (answer.status_code, list(answer.json())) == (501, ["error"])


json_value = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 9) | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
message = st.dictionaries(
    st.sampled_from(["role", "content", "thinking", "tool_calls", "images"]),
    st.sampled_from(["user", "assistant", "tool"]) | json_value,
)
parts = {
    "messages": st.lists(message, max_size=3) | json_value,
    "prompt": json_value,
    "tools": json_value,
    "think": json_value,
    "format": json_value,
}


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.sampled_from(["/api/chat", "/api/generate"]),
    json_value,
    st.fixed_dictionaries({}, optional=parts),
)
def test_whatever_is_sent_is_answered_or_refused(
    client: TestClient, path: str, options: Any, body: dict[str, Any]
) -> None:
    options = {**options, "num_predict": 1} if isinstance(options, dict) else options or {"num_predict": 1}
    assert client.post(path, json={**body, "options": options}).status_code in (200, 400)


def test_calls_are_told_when_they_are_complete() -> None:
    calls = Calls()
    assert not calls.take([CallStart(0, "x", "look"), ArgumentsDelta(0, '{"a"')])
    said = calls.take([ArgumentsDelta(0, ": 1}"), CallEnd(0), ThinkingDelta("hm"), TextDelta("yes")])
    assert (said.text, said.thinking) == ("yes", "hm")
    assert said.calls == ({"function": {"name": "look", "arguments": {"a": 1}}},)
