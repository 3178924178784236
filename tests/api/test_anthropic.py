"""Anthropic's Messages API on the toy model, with its own SDK where that matters."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import anthropic
import pytest
from fastapi.testclient import TestClient
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headstart.api.anthropic_stream import Blocks, signature_of
from headstart.chat.replies.events import ArgumentsDelta, CallEnd, CallStart, TextDelta, ThinkingDelta
from headstart.serving.models import ServedModel
from tests.api.served import CONTEXT, app_for, client_for, http_server, served_toy

HELLO = [{"role": "user", "content": "Hello there, who are you and what do you do all day?"}]


@pytest.fixture(scope="module")
def model() -> Iterator[ServedModel]:
    with served_toy() as one:
        yield one


@pytest.fixture(scope="module")
def client(model: ServedModel) -> TestClient:
    return client_for(model)


@pytest.fixture(scope="module")
def sdk(model: ServedModel) -> Iterator[anthropic.Anthropic]:
    with http_server(app_for(model)) as url:
        yield anthropic.Anthropic(base_url=url, api_key="none", max_retries=0, timeout=30)


def ask(client: TestClient, **fields: Any) -> dict[str, Any]:
    body = {"model": "toy", "max_tokens": 8, "messages": HELLO, "temperature": 0, **fields}
    answer = client.post("/v1/messages", json=body)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def refused(client: TestClient, **fields: Any) -> dict[str, Any]:
    answer = client.post("/v1/messages", json={"max_tokens": 8, "messages": HELLO, **fields})
    found: dict[str, Any] = answer.json()
    assert found["type"] == "error"
    assert answer.status_code == 400, answer.text
    assert found["error"]["type"] == "invalid_request_error"
    return found["error"]


def prompt(usage: dict[str, int]) -> int:
    names = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")
    return sum(usage[name] for name in names)


def tokens(client: TestClient, messages: list[Any], tools: list[Any] | None = None) -> int:
    """What the same conversation in OpenAI's form comes to."""
    body = {"messages": messages, **({"tools": tools} if tools else {})}
    return int(client.post("/tokenize", json=body).json()["count"])


def resumes(client: TestClient, anthropic_body: dict[str, Any], openai_messages: list[Any]) -> None:
    """Both forms make the same prompt: what one has read, the other finds, to the last token."""
    client.post("/v1/chat/completions", json={"messages": openai_messages, "max_tokens": 1})
    usage = ask(client, max_tokens=1, **anthropic_body)["usage"]
    assert prompt(usage) == tokens(client, openai_messages)
    assert usage["input_tokens"] == 0


def test_a_message_and_its_account(client: TestClient) -> None:
    said = [{"role": "user", "content": "An account is kept of what was read, is it not?"}]
    first, again = ask(client, messages=said), ask(client, messages=said)
    assert first["type"] == "message" and first["role"] == "assistant" and first["id"].startswith("msg_")
    assert [block["type"] for block in first["content"]] == ["text"]
    assert (first["stop_reason"], first["stop_sequence"]) == ("max_tokens", None)
    assert prompt(first["usage"]) == prompt(again["usage"]) == tokens(client, said)
    assert first["usage"]["output_tokens"] == 8
    assert again["usage"]["input_tokens"] == 0
    assert again["usage"]["cache_read_input_tokens"] == prompt(first["usage"])
    assert again["content"] == first["content"]


def test_a_stream_has_the_events_of_the_real_one(client: TestClient) -> None:
    text = client.post(
        "/v1/messages", json={"max_tokens": 6, "messages": HELLO, "stream": True, "temperature": 0}
    ).text
    frames = [frame.split("\n") for frame in text.strip().split("\n\n")]
    names = [frame[0].removeprefix("event: ") for frame in frames]
    events = [json.loads(frame[1].removeprefix("data: ")) for frame in frames]
    assert [event["type"] for event in events] == names
    assert names[:3] == ["message_start", "ping", "content_block_start"]
    assert names[-3:] == ["content_block_stop", "message_delta", "message_stop"]
    assert set(names[3:-3]) == {"content_block_delta"}
    whole = ask(client, max_tokens=6)
    said = "".join(event["delta"]["text"] for event in events[3:-3])
    assert said == whole["content"][0]["text"]
    assert events[-2]["delta"] == {"stop_reason": "max_tokens", "stop_sequence": None}
    assert prompt(events[0]["message"]["usage"]) == prompt(events[-2]["usage"]) == prompt(whole["usage"])
    assert events[-2]["usage"]["output_tokens"] == 6


def test_the_sdk_takes_both(sdk: anthropic.Anthropic) -> None:
    asked: dict[str, Any] = {"model": "toy", "max_tokens": 12, "messages": HELLO}
    asked["extra_body"] = {"temperature": 0}
    whole = sdk.messages.create(**asked)
    with sdk.messages.stream(**asked) as stream:
        text = "".join(stream.text_stream)
        final = stream.get_final_message()
    assert whole.content[0].type == "text"
    assert text == whole.content[0].text
    assert final.usage.cache_read_input_tokens == whole.usage.input_tokens + (
        whole.usage.cache_read_input_tokens or 0
    )
    assert sdk.messages.count_tokens(model="toy", messages=HELLO).input_tokens == (  # type: ignore[arg-type]
        final.usage.input_tokens + (final.usage.cache_read_input_tokens or 0)
    )
    with pytest.raises(anthropic.BadRequestError, match="messages"):
        sdk.messages.create(model="toy", max_tokens=1, messages=[])


def test_system_as_text_and_as_blocks(client: TestClient) -> None:
    said = [{"role": "system", "content": "Be kind.\nBe short."}, *HELLO]
    resumes(client, {"system": "Be kind.\nBe short."}, said)
    blocks = [
        {"type": "text", "text": "Be kind.", "cache_control": {"type": "ephemeral"}},
        {"type": "text", "text": "Be short."},
    ]
    resumes(client, {"system": blocks}, said)
    resumes(client, {"system": ""}, HELLO)


def test_the_billing_line_is_no_part_of_the_prompt_and_that_is_said(client: TestClient) -> None:
    blocks = [
        {"type": "text", "text": "x-anthropic-billing-header: cc_version=2.1; cch=36ee5;"},
        {"type": "text", "text": "Be kind."},
    ]
    resumes(client, {"system": blocks}, [{"role": "system", "content": "Be kind."}, *HELLO])
    line = blocks[0]["text"]
    both = [{"type": "text", "text": f"{line}\nBe kind."}]
    resumes(client, {"system": both}, [{"role": "system", "content": "Be kind."}, *HELLO])
    resumes(client, {"system": f"{line}\nBe kind."}, [{"role": "system", "content": "Be kind."}, *HELLO])
    resumes(client, {"system": line}, HELLO)
    assert "billing line" in ask(client, system=blocks)["headstart"]["warnings"][0]
    assert "headstart" not in ask(client, system=blocks[1:])


def test_tools_calls_results_and_thinking(client: TestClient) -> None:
    call = {"type": "tool_use", "id": "toolu_1", "name": "look", "input": {"path": "a.py", "n": 2}}
    result = {"type": "tool_result", "tool_use_id": "toolu_1", "content": [{"type": "text", "text": "one"}]}
    said = [
        {"role": "user", "content": [{"type": "text", "text": "Look."}]},
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "I look.", "signature": "x"},
                {"type": "redacted_thinking", "data": "zzz"},
                {"type": "text", "text": "I look."},
                call,
            ],
        },
        {"role": "user", "content": [{"type": "text", "text": "Go on."}, result]},
        {"role": "system", "content": "Two turns left."},
    ]
    schema = {"type": "object", "properties": {"path": {"type": "string"}}}
    tools = [{"name": "look", "description": "looks", "input_schema": schema}]
    function = {"name": "look", "arguments": '{"path": "a.py", "n": 2}'}
    openai_said = [
        {"role": "user", "content": "Look."},
        {
            "role": "assistant",
            "content": "I look.",
            "reasoning_content": "I look.",
            "tool_calls": [{"id": "toolu_1", "type": "function", "function": function}],
        },
        {"role": "tool", "tool_call_id": "toolu_1", "content": "one"},
        {"role": "user", "content": "Go on."},
        {"role": "system", "content": "Two turns left."},
    ]
    resumes(client, {"messages": said}, openai_said)
    openai_tools = [
        {"type": "function", "function": {"name": "look", "description": "looks", "parameters": schema}}
    ]
    counted = client.post("/v1/messages/count_tokens", json={"messages": said, "tools": tools}).json()
    assert counted["input_tokens"] == tokens(client, openai_said, openai_tools)


def test_what_is_done_to_results_is_said(client: TestClient) -> None:
    call = {"type": "tool_use", "id": "a", "name": "look", "input": {}}
    result = {"type": "tool_result", "tool_use_id": "a", "content": "no such file"}
    text = {"type": "text", "text": "Go on."}

    def warnings(*blocks: Any) -> list[str]:
        said = [*HELLO, {"role": "assistant", "content": [call]}, {"role": "user", "content": list(blocks)}]
        return [
            one.split(":")[0] for one in ask(client, messages=said).get("headstart", {}).get("warnings", [])
        ]

    assert warnings(result, text) == warnings({**result, "is_error": False}) == []
    assert warnings({**result, "is_error": True}) == ["is_error"]
    assert warnings(text, result) == ["tool_result"]


def test_why_a_reply_ended(client: TestClient) -> None:
    text = ask(client, max_tokens=40)["content"][0]["text"]
    stop = text[4:6]
    ended = ask(client, max_tokens=40, stop_sequences=["never said", stop])
    assert (ended["stop_reason"], ended["stop_sequence"]) == ("stop_sequence", stop)
    assert ended["content"][0]["text"] == text[: text.index(stop)]


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_tokens": "many"}, "max_tokens"),
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "robot", "content": "x"}]}, "messages[0].role must be"),
        ({"messages": [{"role": "user", "content": 3}]}, "messages[0].content must be"),
        ({"messages": [{"role": "user", "content": [{"text": "x"}]}]}, "messages[0].content[0] must be"),
        ({"messages": [{"role": "user", "content": [{"type": "image"}]}]}, "of type image"),
        ({"messages": [{"role": "user", "content": [{"type": "text", "text": 3}]}]}, "needs its text"),
        ({"messages": [{"role": "user", "content": [{"type": "tool_result"}]}]}, "tool_use_id"),
        ({"messages": [{"role": "assistant", "content": [{"type": "tool_use"}]}]}, "needs a name"),
        ({"system": 3}, "system"),
        ({"system": [{"type": "image"}]}, "system[0] is of type image"),
        ({"tools": [{"name": "a"}]}, "tools[0].input_schema"),
        ({"tools": [{"type": "web_search_20250305", "name": "web_search"}]}, "Anthropic's servers run"),
        ({"stop_sequences": [""]}, "stop_sequences"),
        ({"temperature": -1}, "temperature"),
        ({"messages": [{"role": "user", "content": "long " * CONTEXT}]}, "tokens"),
    ],
)
def test_bad_requests_are_told_in_its_shape(client: TestClient, fields: dict[str, Any], words: str) -> None:
    assert words in refused(client, **fields)["message"]


def test_no_json_and_unknown_fields(client: TestClient) -> None:
    assert client.post("/v1/messages", content=b"{").json()["error"]["type"] == "invalid_request_error"
    warnings = ask(client, model="claude", frobnicate=1, metadata={"user_id": "x"})["headstart"]["warnings"]
    assert [one.split(":")[0] for one in warnings] == ["model", "frobnicate"]


def test_ten_thousand_messages(client: TestClient) -> None:
    said = [{"role": ("user", "assistant")[n % 2], "content": "x"} for n in range(10_000)]
    assert "tokens" in refused(client, messages=said)["message"]


json_value = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 9) | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
block = st.dictionaries(
    st.sampled_from(["type", "text", "content", "tool_use_id", "name", "input", "thinking"]),
    st.sampled_from(["text", "tool_use", "tool_result", "thinking", "x"]) | json_value,
)
message = st.fixed_dictionaries(
    {
        "role": st.sampled_from(["user", "assistant", "system", "x"]),
        "content": json_value | st.lists(block, max_size=3),
    }
)


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.fixed_dictionaries(
        {"messages": st.lists(message, max_size=3) | json_value, "max_tokens": st.just(1) | json_value},
        optional={
            "system": json_value | st.lists(block, max_size=2),
            "tools": json_value,
            "thinking": json_value,
        },
    )
)
def test_whatever_is_sent_is_answered_or_refused(client: TestClient, body: dict[str, Any]) -> None:
    assert client.post("/v1/messages", json=body).status_code in (200, 400)


def test_blocks_of_every_kind_follow_each_other() -> None:
    blocks = Blocks()
    events = [
        ThinkingDelta("I "),
        ThinkingDelta("look."),
        TextDelta("Now"),
        CallStart(0, "call_1", "look"),
        ArgumentsDelta(0, '{"path":'),
        ArgumentsDelta(0, ' "a"}'),
        CallEnd(0),
        CallStart(1, "call_2", "stop"),
        CallEnd(1),
        TextDelta(" done"),
    ]
    sent = [*blocks.take(events), *blocks.end()]
    assert blocks.content == [
        {"type": "thinking", "thinking": "I look.", "signature": signature_of("I look.")},
        {"type": "text", "text": "Now"},
        {"type": "tool_use", "id": "call_1", "name": "look", "input": {"path": "a"}},
        {"type": "tool_use", "id": "call_2", "name": "stop", "input": {}},
        {"type": "text", "text": " done"},
    ]
    assert blocks.called
    starts = [event["index"] for event in sent if event["type"] == "content_block_start"]
    stops = [event["index"] for event in sent if event["type"] == "content_block_stop"]
    assert starts == stops == [0, 1, 2, 3, 4]
    open_now = None
    for event in sent:
        if event["type"] == "content_block_start":
            assert open_now is None
            open_now = event["index"]
        else:
            assert event["index"] == open_now
            open_now = None if event["type"] == "content_block_stop" else open_now
    pieces = [event["delta"]["partial_json"] for event in sent if event.get("delta", {}).get("partial_json")]
    assert pieces == ['{"path":', ' "a"}']
