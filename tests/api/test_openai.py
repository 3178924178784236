"""The OpenAI endpoints on a real scheduler with the toy engine."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from fastapi.testclient import TestClient

from headstart.engines.toy import ToyEngine
from headstart.serving.models import ServedModel
from tests.api.served import CONTEXT, client_for, served_toy, sse_events

CHAT = "/v1/chat/completions"
TEXT = "/v1/completions"
HELLO = [{"role": "user", "content": "hello"}]


@pytest.fixture(scope="module")
def model() -> Iterator[ServedModel]:
    with served_toy() as model:
        yield model


@pytest.fixture(scope="module")
def client(model: ServedModel) -> TestClient:
    return client_for(model)


def ask(client: TestClient, path: str = CHAT, **fields: Any) -> dict[str, Any]:
    body = {"temperature": 0, "max_tokens": 12, "ignore_eos": True} | fields
    if path == CHAT:
        body.setdefault("messages", HELLO)
    answer = client.post(path, json=body)
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


def refused(client: TestClient, path: str = CHAT, status: int = 400, **fields: Any) -> dict[str, Any]:
    body = ({"messages": HELLO} if path == CHAT else {}) | fields
    answer = client.post(path, json=body)
    assert answer.status_code == status, answer.text
    error = answer.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    return dict(error)


def test_chat_completion_has_openais_shape(client: TestClient) -> None:
    reply = ask(client)
    assert reply["id"].startswith("chatcmpl-")
    assert reply["object"] == "chat.completion"
    assert reply["model"] == "toy"
    [choice] = reply["choices"]
    assert choice["message"]["role"] == "assistant"
    assert choice["finish_reason"] == "length"
    assert choice["logprobs"] is None
    usage = reply["usage"]
    assert usage["completion_tokens"] == 12
    assert usage["total_tokens"] == usage["prompt_tokens"] + 12
    assert "headstart" not in reply


def test_completion_of_text_and_of_its_token_ids_is_the_same(client: TestClient) -> None:
    ids = client.post("/tokenize", json={"content": "once upon"}).json()["tokens"]
    by_text = ask(client, TEXT, prompt="once upon")
    by_ids = ask(client, TEXT, prompt=ids)
    assert by_text["object"] == "text_completion"
    assert by_text["choices"][0]["text"] == by_ids["choices"][0]["text"] != ""


def test_several_prompts_keep_their_order(client: TestClient) -> None:
    alone = [ask(client, TEXT, prompt=prompt)["choices"][0]["text"] for prompt in ("one", "two", "three")]
    together = ask(client, TEXT, prompt=["one", "two", "three"])
    assert [choice["text"] for choice in together["choices"]] == alone
    assert [choice["index"] for choice in together["choices"]] == [0, 1, 2]
    lists = [list(prompt.encode()) for prompt in ("one", "two", "three")]
    assert [choice["text"] for choice in ask(client, TEXT, prompt=lists)["choices"]] == alone
    assert together["usage"]["prompt_tokens"] == 11
    assert together["usage"]["completion_tokens"] == 36


def test_completions_default_to_sixteen_tokens(client: TestClient) -> None:
    answer = client.post(TEXT, json={"prompt": "x", "ignore_eos": True}).json()
    assert answer["usage"]["completion_tokens"] == 16


@pytest.mark.parametrize("path", [CHAT, TEXT])
def test_stream_adds_up_to_the_whole_reply(client: TestClient, path: str) -> None:
    fields: dict[str, Any] = {"seed": 5, "temperature": 1.0, "max_tokens": 40, "n": 3, "logprobs": True}
    if path == TEXT:
        fields |= {"prompt": "some text", "logprobs": 2}
    whole = ask(client, path, **fields)
    answer = client.post(
        path,
        json={
            "messages": HELLO,
            "ignore_eos": True,
            **fields,
            "stream": True,
            "stream_options": {"include_usage": True},
        },
    )
    assert answer.headers["content-type"].startswith("text/event-stream")
    *chunks, done = sse_events(answer.text)
    assert done == "[DONE]"
    texts, reasons, logprobs = ["", "", ""], [None] * 3, [0, 0, 0]
    for chunk in chunks[:-1]:
        assert chunk["usage"] is None
        [choice] = chunk["choices"]
        index = choice["index"]
        texts[index] += choice["text"] if path == TEXT else choice["delta"].get("content", "")
        reasons[index] = choice["finish_reason"] or reasons[index]
        found = choice["logprobs"] or {}
        logprobs[index] += len(found.get("content" if path == CHAT else "tokens", ()))
    expected = [c["text"] if path == TEXT else c["message"]["content"] for c in whole["choices"]]
    assert texts == expected
    assert len(set(texts)) == 3
    assert reasons == ["length"] * 3
    assert logprobs == [40, 40, 40]
    final = chunks[-1]
    assert final["choices"] == []
    assert set(final["usage"]) == set(whole["usage"])
    assert final["usage"]["completion_tokens"] == 120
    assert set(final["timings"]) == set(chunks[-2]["timings"]) == set(whole["timings"])


def test_chat_stream_begins_with_the_first_text(client: TestClient) -> None:
    answer = client.post(
        CHAT, json={"messages": HELLO, "stream": True, "max_tokens": 6, "ignore_eos": True, "temperature": 0}
    )
    chunks = sse_events(answer.text)[:-1]
    first = chunks[0]["choices"][0]["delta"]
    assert first["role"] == "assistant"
    assert first["content"]
    assert all("role" not in chunk["choices"][0]["delta"] for chunk in chunks[1:])
    assert all("usage" not in chunk for chunk in chunks)


def test_cached_tokens_and_timings_agree(client: TestClient) -> None:
    messages = [{"role": "user", "content": "a new story " * 30}]
    first = ask(client, messages=messages)
    second = ask(client, messages=messages)
    assert first["usage"]["prompt_tokens_details"]["cached_tokens"] < 40
    cached = second["usage"]["prompt_tokens_details"]["cached_tokens"]
    assert cached >= second["usage"]["prompt_tokens"] - 1
    assert second["timings"]["cache_n"] == cached
    assert second["timings"]["cache_n"] + second["timings"]["prompt_n"] == second["usage"]["prompt_tokens"]
    assert first["choices"] == second["choices"]
    for reply in (first, second):
        usage = reply["usage"]
        assert 0 < usage["time_to_first_token"] <= usage["total_time"]
        assert usage["prompt_eval_duration"] * 1e3 == pytest.approx(reply["timings"]["prompt_ms"])
        assert usage["generation_duration"] * 1e3 == pytest.approx(reply["timings"]["predicted_ms"])


def test_cache_prompt_false_reads_everything(client: TestClient) -> None:
    messages = [{"role": "user", "content": "read this again " * 10}]
    ask(client, messages=messages)
    again = ask(client, messages=messages, cache_prompt=False)
    assert again["usage"]["prompt_tokens_details"]["cached_tokens"] == 0


def test_n_replies_count_the_prompt_once_and_differ(client: TestClient) -> None:
    reply = ask(client, n=4, temperature=1.5, seed=1, max_tokens=20)
    texts = [choice["message"]["content"] for choice in reply["choices"]]
    assert len(set(texts)) == 4
    again = ask(client, n=4, temperature=1.5, seed=1, max_tokens=20)
    assert [choice["message"]["content"] for choice in again["choices"]] == texts
    assert reply["usage"]["prompt_tokens"] == ask(client)["usage"]["prompt_tokens"]
    assert reply["usage"]["completion_tokens"] == 80


def test_chat_logprobs(client: TestClient) -> None:
    [choice] = ask(client, logprobs=True, top_logprobs=3)["choices"]
    entries = choice["logprobs"]["content"]
    assert len(entries) == 12
    for entry in entries:
        assert entry["logprob"] <= 0
        assert bytes(entry["bytes"]).decode("utf-8", "replace") == entry["token"]
        assert len(entry["top_logprobs"]) == 3
        assert entry["top_logprobs"][0]["logprob"] == entry["logprob"]  # greedy
    assert (
        b"".join(bytes(entry["bytes"]) for entry in entries).decode("utf-8", "replace")
        == choice["message"]["content"]
    )
    assert ask(client, logprobs=True)["choices"][0]["logprobs"]["content"][0]["top_logprobs"] == []


def test_completions_logprobs(client: TestClient) -> None:
    [choice] = ask(client, TEXT, prompt="abc", logprobs=2)["choices"]
    logprobs = choice["logprobs"]
    assert len(logprobs["tokens"]) == len(logprobs["token_logprobs"]) == len(logprobs["text_offset"]) == 12
    assert all(len(top) in (1, 2) for top in logprobs["top_logprobs"])
    assert ask(client, TEXT, prompt="abc", logprobs=0)["choices"][0]["logprobs"]["top_logprobs"] is None


def test_stop_string_ends_the_reply_before_it(client: TestClient) -> None:
    text = ask(client, max_tokens=30)["choices"][0]["message"]["content"]
    stop = text[10:13]
    reply = ask(client, max_tokens=30, stop=stop)["choices"][0]
    assert reply["message"]["content"] == text[: text.index(stop)]
    assert reply["finish_reason"] == "stop"
    listed = ask(client, max_tokens=30, stop=["no such", stop])["choices"][0]
    assert listed["message"] == reply["message"]


def test_no_stop_string_is_none(client: TestClient) -> None:
    assert ask(client, stop=None)["choices"] == ask(client, stop=[])["choices"]


def test_max_completion_tokens_takes_the_place_of_max_tokens(client: TestClient) -> None:
    reply = ask(client, max_tokens=3, max_completion_tokens=5)
    assert reply["usage"]["completion_tokens"] == 5
    assert "max_tokens" in reply["headstart"]["warnings"][0]


def test_json_schema_is_held(client: TestClient) -> None:
    schema = {
        "type": "object",
        "properties": {"a": {"type": "boolean"}},
        "required": ["a"],
        "additionalProperties": False,
    }
    form = {"type": "json_schema", "json_schema": {"name": "x", "strict": True, "schema": schema}}
    [choice] = ask(client, response_format=form, max_tokens=300, ignore_eos=False)["choices"]
    assert choice["finish_reason"] == "stop"
    assert isinstance(json.loads(choice["message"]["content"])["a"], bool)
    [choice] = ask(client, response_format={"type": "json_object"}, max_tokens=1)["choices"]
    assert choice["message"]["content"] == "{"
    [choice] = ask(client, TEXT, prompt="x", response_format={"type": "regex", "pattern": "yes|no"})[
        "choices"
    ]
    assert choice["text"] in ("yes", "no")


def test_logit_bias(client: TestClient) -> None:
    [choice] = ask(client, logit_bias={str(ord("Q")): 100}, max_tokens=4)["choices"]
    assert choice["message"]["content"] == "QQQQ"


def test_report_rides_in_the_reply_and_can_be_asked_for_later(client: TestClient) -> None:
    talk = [{"role": "system", "content": "S" * 40}, {"role": "user", "content": "first question"}]
    ask(client, messages=talk)
    talk[1] = {"role": "user", "content": "first answer"}
    reply = ask(client, messages=talk, headstart={"report": True})
    report = reply["headstart"]["report"]
    assert report["prompt_tokens"] == report["restored"] + report["replayed"] + report["new"]
    assert report["divergence_message"] == 1
    assert report["text_before"].endswith("user\nfirst ")
    assert report["text_after"].startswith("answer<|im_end|>")
    later = client.get(f"/v1/headstart/requests/{reply['id']}").json()
    assert later["replies"] == [report]
    streamed = client.post(
        CHAT, json={"messages": talk, "stream": True, "max_tokens": 2, "headstart": {"report": True}}
    )
    assert sse_events(streamed.text)[-2]["headstart"]["report"]["gap"] == 0


def test_reports_of_another_tenant_are_not_shown(client: TestClient) -> None:
    answer = client.post(CHAT, json={"messages": HELLO, "max_tokens": 1}, headers={"x-tenant": "a"})
    path = f"/v1/headstart/requests/{answer.json()['id']}"
    assert client.get(path, headers={"x-tenant": "a"}).status_code == 200
    assert client.get(path, headers={"x-tenant": "b"}).status_code == 404
    assert client.get("/v1/headstart/requests/none").json()["error"]["code"] == "request_not_found"


def test_tenants_do_not_share_state(client: TestClient) -> None:
    body = {"messages": [{"role": "user", "content": "a secret of somebody " * 5}], "max_tokens": 1}
    for tenant, cached in (("x", False), ("x", True), ("y", False)):
        usage = client.post(CHAT, json=body, headers={"x-tenant": tenant}).json()["usage"]
        assert (usage["prompt_tokens_details"]["cached_tokens"] > 0) is cached


def test_models_list_says_what_was_found_out(client: TestClient) -> None:
    [entry] = client.get("/v1/models").json()["data"]
    assert entry["id"] == "toy"
    assert entry["headstart"]["context_tokens"] == CONTEXT
    assert {"state_proved", "exact_repeat", "restore_equals_cold", "notes"} <= set(entry["headstart"])
    assert entry["headstart"]["adapters"] == []
    assert client.get("/v1/models/toy").json() == entry
    assert client.get("/v1/models/other").status_code == 404


def test_tokenize_and_detokenize(client: TestClient) -> None:
    tokens = client.post("/tokenize", json={"content": "é<|im_end|>", "parse_special": True}).json()
    assert tokens == {"tokens": [195, 169, 258], "count": 3, "max_model_len": CONTEXT}
    assert client.post("/tokenize", json={"prompt": "<|", "parse_special": False}).json()["tokens"] == [
        60,
        124,
    ]
    assert client.post("/detokenize", json={"tokens": [195, 169, 258]}).json()["content"] == "é<|im_end|>"
    pieces = client.post("/tokenize", json={"content": "a", "with_pieces": True}).json()["tokens"]
    assert pieces == [{"id": 97, "piece": "a"}]
    chat = client.post("/tokenize", json={"messages": HELLO}).json()
    assert chat["count"] == ask(client)["usage"]["prompt_tokens"]
    for body in ({}, {"content": 3}):
        assert client.post("/tokenize", json=body).status_code == 400
    for tokens in ([-1], [10**9], ["a"], 3):
        assert client.post("/detokenize", json={"tokens": tokens}).status_code == 400


def test_what_the_template_makes_of_messages(client: TestClient) -> None:
    """Text and tokens of a conversation are those that its prompt is made of."""
    text = client.post("/apply-template", json={"messages": HELLO}).json()["prompt"]
    shown = client.post(
        "/tokenize", json={"content": text, "add_special": True, "parse_special": True}
    ).json()
    assert shown == client.post("/tokenize", json={"messages": HELLO}).json()
    assert shown["count"] == ask(client)["usage"]["prompt_tokens"]
    bare = client.post("/apply-template", json={"messages": HELLO, "add_generation_prompt": False}).json()
    assert text.startswith(bare["prompt"]) and text != bare["prompt"]
    for body in (
        {},
        {"messages": [{}]},
        {"messages": [{"role": "user", "content": [{"type": "image_url"}]}]},
    ):
        refused = client.post("/apply-template", json=body)
        assert refused.status_code == 400 and "messages" in refused.json()["error"]["message"]


def test_warnings_name_what_was_not_used(client: TestClient) -> None:
    tools = [{"type": "function", "function": {"name": "f", "parameters": {}}}]
    reply = ask(
        client,
        model="gpt-4o",
        tools=tools,
        tool_choice="none",
        frobnicate=1,
        user="me",
        metadata={"a": "b"},
        store=True,
        service_tier="auto",
        seed=None,
        unknown_null=None,
    )
    warnings = reply["headstart"]["warnings"]
    assert [warning.split(":")[0] for warning in warnings] == ["model", "frobnicate"]
    assert "gpt-4o" not in str(warnings)
    plain = ask(client, user="me", metadata={"a": "b"}, store=False, tool_choice="none")
    assert "headstart" not in plain


def test_reply_that_the_context_cuts_short_says_so(client: TestClient) -> None:
    prompt = "x" * (CONTEXT - 5)
    reply = ask(client, TEXT, prompt=prompt, max_tokens=50)
    assert reply["usage"]["completion_tokens"] == 5
    assert reply["choices"][0]["finish_reason"] == "length"
    assert "room for 5" in reply["headstart"]["warnings"][0]
    assert "headstart" not in ask(client, TEXT, prompt=prompt, max_tokens=5)


def test_tools_reach_the_template(client: TestClient) -> None:
    tools = [{"type": "function", "function": {"name": "look_up"}}]
    with_tools = ask(client, tools=tools, headstart={"report": True})
    assert with_tools["usage"]["prompt_tokens"] > ask(client)["usage"]["prompt_tokens"] + 30


@pytest.mark.parametrize(
    ("field", "value", "param"),
    [
        ("temperature", "0.5", "temperature"),
        ("temperature", -1, "temperature"),
        ("top_p", 2, "top_p"),
        ("top_k", 1.5, "top_k"),
        ("max_tokens", "many", "max_tokens"),
        ("max_tokens", 0, "max_tokens"),
        ("max_tokens", True, "max_tokens"),
        ("n", 1000, "n"),
        ("stream", "yes", "stream"),
        ("messages", "hello", "messages"),
        ("messages", [], "messages"),
        ("messages", ["secret"], "messages[0]"),
        ("messages", [{"content": "secret"}], "messages[0].role"),
        ("messages", [{"role": "user", "content": {"secret": 1}}], "messages[0].content"),
        ("messages", [{"role": "user", "content": [{"type": "image_url"}]}], "messages[0].content[0]"),
        ("stop", ["secret"] * 10_000, "stop"),
        ("stop", "x" * 10_000, "stop[0]"),
        ("stop", [""], "stop[0]"),
        ("stop", 3, "stop"),
        ("logit_bias", {"secret": 1}, "logit_bias"),
        ("logit_bias", {"99999999": 1}, "logit_bias"),
        ("logit_bias", {"1": 101}, "logit_bias"),
        ("logit_bias", {"1": "secret"}, "logit_bias"),
        ("top_logprobs", 3, "top_logprobs"),
        ("top_logprobs", 21, "top_logprobs"),
        ("response_format", {"type": "xml"}, "response_format.type"),
        ("response_format", {"type": "json_schema"}, "response_format.json_schema"),
        (
            "response_format",
            {"type": "json_schema", "json_schema": {"schema": {"type": "x"}}},
            "response_format.json_schema.schema",
        ),
        ("stream_options", {"include_usage": True}, "stream_options"),
        ("chat_template_kwargs", {"messages": []}, "chat_template_kwargs.messages"),
        ("headstart", {"report": "secret"}, "headstart.report"),
        ("seed", 2**70, "seed"),
        ("repetition_penalty", 5e-324, "repetition_penalty"),
    ],
)
def test_what_cannot_be_served_is_refused_by_name(
    client: TestClient, field: str, value: Any, param: str
) -> None:
    error = refused(client, **{field: value})
    assert error["param"] == param
    assert error["type"] == "invalid_request_error"
    assert "secret" not in error["message"]
    assert len(error["message"]) < 300


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({}, "prompt"),
        ({"prompt": 3}, "prompt"),
        ({"prompt": ""}, "prompt"),
        ({"prompt": []}, "prompt"),
        ({"prompt": [[]]}, "prompt"),
        ({"prompt": [1, -1]}, "prompt"),
        ({"prompt": [1, 10**6]}, "prompt"),
        ({"prompt": [1, 2**80]}, "prompt"),
        ({"prompt": [1, "secret"]}, "prompt"),
        ({"prompt": ["x"] * 99}, "prompt"),
        ({"prompt": ["x"] * 9, "n": 9}, "prompt"),
        ({"prompt": "x", "echo": True}, "echo"),
        ({"prompt": "x", "suffix": "secret"}, "suffix"),
        ({"prompt": "x", "best_of": 4}, "best_of"),
        ({"prompt": "x", "logprobs": True}, "logprobs"),
    ],
)
def test_bad_completions_are_refused_by_name(client: TestClient, fields: dict[str, Any], param: str) -> None:
    error = refused(client, TEXT, **fields)
    assert error["param"] == param
    assert "secret" not in error["message"]


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b"\xff\xfe",
        b'{"messages": [' + b"[" * 100_000,
        b'{"temperature": NaN}',
        b'{"messages":[{"role":"user","content":"\\ud800"}]}',
    ],
)
def test_what_is_not_a_json_object_is_a_bad_request(client: TestClient, body: bytes) -> None:
    answer = client.post(CHAT, content=body)
    assert answer.status_code == 400
    assert answer.json()["error"]["type"] == "invalid_request_error"


def test_over_long_prompt_names_both_numbers(client: TestClient) -> None:
    error = refused(client, messages=[{"role": "user", "content": "x" * 5000}])
    assert error["code"] == "context_length_exceeded"
    assert str(CONTEXT) in error["message"]
    assert "5019" in error["message"]
    assert (
        refused(client, stream=True, messages=[{"role": "user", "content": "x" * 5000}])["code"]
        == error["code"]
    )


def test_next_request_is_answered_after_every_refusal(client: TestClient) -> None:
    refused(client, stop=[1])
    assert ask(client)["choices"]


def test_model_without_a_template_says_what_to_do(model: ServedModel) -> None:
    bare = client_for(replace(model, template=None))
    error = refused(bare)
    assert "--chat-template" in error["message"]
    assert ask(bare, TEXT, prompt="still works")["choices"]


@pytest.mark.parametrize("edited", [1, 2, 3])
def test_recurrent_model_resumes_at_the_start_of_the_message_that_was_edited(edited: int) -> None:
    """A checkpoint stands at every message start, so replay is at most the edited message's head."""
    with served_toy(ToyEngine(("full", "recurrent"), context_tokens=CONTEXT)) as model:
        client = client_for(model)
        talk = [
            {"role": role, "content": f"{role} text " * 9} for role in ("system", "user", "assistant", "user")
        ]
        first = ask(client, messages=talk)
        assert first["usage"]["prompt_tokens_details"]["cached_tokens"] == 0
        talk[edited] = {**talk[edited], "content": "something else " * 3}
        report = ask(client, messages=talk, headstart={"report": True})["headstart"]["report"]
        assert model.template is not None
        start = len(model.template.render(talk[:edited], add_generation_prompt=False))
        marker = "<|im_start|>"
        start -= (len(marker) - 1) * edited + (len("<|im_end|>") - 1) * edited
        assert report["restored"] == start
        assert report["divergence"] == start + 1 + len(f"{talk[edited]['role']}\n")
        again = ask(client, messages=talk, cache_prompt=True, headstart={"report": True})
        assert again["headstart"]["report"]["gap"] == 0


def test_full_queue_is_503_with_retry_after() -> None:
    with served_toy(ToyEngine(context_tokens=CONTEXT, max_sequences=1), queue_limit=1) as model:
        client = client_for(model)
        answer = client.post(CHAT, json={"messages": HELLO, "n": 8, "max_tokens": 900, "ignore_eos": True})
        assert answer.status_code == 503
        assert int(answer.headers["retry-after"]) >= 1
        assert answer.json()["error"]["code"] == "overloaded"
        assert ask(client)["choices"]
