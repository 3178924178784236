"""OpenAI's Responses API on the toy model, with its own SDK where that matters."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import openai
import pytest
from fastapi.testclient import TestClient
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headstart.api.responses_store import Store
from headstart.api.usage import thought_tokens
from headstart.chat.template import ChatTemplate
from headstart.engines.base import Vocabulary
from headstart.serving.models import ServedModel
from headstart.serving.request import Delta, FinishReason, PrefillDone
from tests.api.served import CONTEXT, Scripted, app_for, client_for, http_server, served_toy
from tests.api.test_calls import ARGUMENTS, REPLY, SCHEMA, TEMPLATE, writing
from tests.api.test_openai_stream import REPORT, end
from tests.chat.templates import ALTERNATING

HELLO = "Hello there, who are you and what do you do all day?"
PATH = "/v1/responses"


@pytest.fixture(scope="module")
def model() -> Iterator[ServedModel]:
    with served_toy() as one:
        yield one


@pytest.fixture(scope="module")
def client(model: ServedModel) -> TestClient:
    return client_for(model)


def ask(client: TestClient, **fields: Any) -> dict[str, Any]:
    body = {"model": "toy", "input": HELLO, "max_output_tokens": 8, "temperature": 0, **fields}
    answer = client.post(PATH, json=body)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def tokens(client: TestClient, messages: list[Any], **more: Any) -> int:
    """What the same conversation in the form of chat completions comes to."""
    return int(client.post("/tokenize", json={"messages": messages, **more}).json()["count"])


def events(text: str) -> list[dict[str, Any]]:
    frames = [frame.split("\n") for frame in text.strip().split("\n\n")]
    found = [json.loads(frame[1].removeprefix("data: ")) for frame in frames]
    assert [one["type"] for one in found] == [frame[0].removeprefix("event: ") for frame in frames]
    assert [one["sequence_number"] for one in found] == list(range(len(found)))
    return found


def test_a_response_and_its_account(client: TestClient) -> None:
    first, again = (ask(client, input="An account is kept, is it not?") for _ in range(2))
    assert first["object"] == "response" and first["id"].startswith("resp_")
    cut = {"reason": "max_output_tokens"} if first["usage"]["output_tokens"] == 8 else None
    assert first["incomplete_details"] == cut
    assert first["status"] == ("incomplete" if cut else "completed")
    (item,) = first["output"]
    assert (item["type"], item["role"], item["status"]) == ("message", "assistant", first["status"])
    usage = again["usage"]
    counted = tokens(client, [{"role": "user", "content": "An account is kept, is it not?"}])
    assert usage["input_tokens"] == usage["input_tokens_details"]["cached_tokens"] == counted
    assert usage["total_tokens"] == counted + usage["output_tokens"]
    assert again["output"][0]["content"] == item["content"]


def test_a_stream_has_the_events_of_the_real_one(client: TestClient) -> None:
    body = {"input": HELLO, "max_output_tokens": 6, "stream": True, "temperature": 0}
    sent = events(client.post(PATH, json=body).text)
    names = [one["type"].removeprefix("response.") for one in sent]
    assert names[:4] == ["created", "in_progress", "output_item.added", "content_part.added"]
    assert names[-4:] == ["output_text.done", "content_part.done", "output_item.done", "incomplete"]
    assert set(names[4:-4]) == {"output_text.delta"}
    text = "".join(one["delta"] for one in sent[4:-4])
    assert sent[-4]["text"] == text == ask(client, max_output_tokens=6)["output"][0]["content"][0]["text"]
    assert sent[-1]["response"]["output"][0]["content"][0]["text"] == text
    assert sent[-1]["response"]["usage"]["output_tokens"] == 6
    assert {one["item_id"] for one in sent[3:-2]} == {sent[-1]["response"]["output"][0]["id"]}


def test_the_sdk_goes_on_from_a_response(model: ServedModel) -> None:
    with http_server(app_for(model)) as url:
        sdk = openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0)
        first = sdk.responses.create(model="toy", input=HELLO, max_output_tokens=8, temperature=0)
        following = sdk.responses.create(
            model="toy", input="And then?", previous_response_id=first.id, max_output_tokens=8
        )
        assert sdk.responses.retrieve(first.id).output_text == first.output_text
        sdk.responses.delete(first.id)
        with pytest.raises(openai.NotFoundError, match="there is no response"):
            sdk.responses.create(model="toy", input="x", previous_response_id=first.id)
    assert first.usage and following.usage
    before = first.usage.input_tokens
    assert following.usage.input_tokens > before
    assert following.usage.input_tokens_details.cached_tokens >= before - 12, "all but the end of the prompt"


def test_the_sdk_takes_a_stream(model: ServedModel) -> None:
    with http_server(app_for(writing(model, REPLY))) as url:
        sdk = openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0)
        tools: list[Any] = [{"type": "function", "name": "look", "parameters": SCHEMA}]
        with sdk.responses.stream(model="toy", input=HELLO, tools=tools) as stream:
            text = "".join(one.delta for one in stream if one.type == "response.output_text.delta")
            final = stream.get_final_response()
    assert final.output_text == text
    assert text.strip() == "I look at both."
    calls = [json.loads(one.arguments) for one in final.output if one.type == "function_call"]
    assert calls == ARGUMENTS


def test_items_are_the_messages_they_stand_for(client: TestClient) -> None:
    items = [
        {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "Be kind."}]},
        {"role": "user", "content": "Look.", "id": "msg_1"},
        {
            "type": "reasoning",
            "id": "rs_1",
            "summary": [],
            "content": [{"type": "reasoning_text", "text": "Hm."}],
        },
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "I look."}]},
        {
            "type": "function_call",
            "id": "fc_1",
            "call_id": "c1",
            "name": "look",
            "arguments": '{"path": "a"}',
        },
        {"type": "function_call", "call_id": "c2", "name": "look", "arguments": '{"path": "b"}'},
        {"type": "function_call_output", "call_id": "c1", "output": "one", "id": "x"},
        {"type": "function_call_output", "call_id": "c2", "output": [{"type": "input_text", "text": "two"}]},
    ]
    calls = [
        {
            "id": f"c{n}",
            "type": "function",
            "function": {"name": "look", "arguments": f'{{"path": "{name}"}}'},
        }
        for n, name in ((1, "a"), (2, "b"))
    ]
    messages = [
        {"role": "developer", "content": "Be kind."},
        {"role": "user", "content": "Look."},
        {"role": "assistant", "content": "I look.", "reasoning_content": "Hm.", "tool_calls": calls},
        {"role": "tool", "tool_call_id": "c1", "content": "one"},
        {"role": "tool", "tool_call_id": "c2", "content": "two"},
    ]
    client.post("/v1/chat/completions", json={"messages": messages, "max_tokens": 1})
    usage = ask(client, input=items, max_output_tokens=1)["usage"]
    assert usage["input_tokens"] == usage["input_tokens_details"]["cached_tokens"] == tokens(client, messages)
    system = [{"role": "system", "content": "Be short."}, {"role": "user", "content": HELLO}]
    assert ask(client, instructions="Be short.")["usage"]["input_tokens"] == tokens(client, system)


def test_tools_of_every_kind(client: TestClient) -> None:
    tool = {"type": "function", "name": "look", "description": "looks", "parameters": SCHEMA, "strict": False}
    tools = [{"type": "namespace", "name": "n", "tools": [tool]}, {"type": "web_search"}]
    reply = ask(client, tools=tools)
    assert reply["headstart"]["warnings"] == ["tools: web_search runs at OpenAI and was left out"]
    function = {"name": "look", "description": "looks", "parameters": SCHEMA}
    said = [{"role": "user", "content": HELLO}]
    counted = tokens(client, said, tools=[{"type": "function", "function": function}])
    assert reply["usage"]["input_tokens"] == counted
    assert ask(client, tools=[{"type": "custom", "name": "patch"}])["usage"]["input_tokens"] > 0


@pytest.mark.parametrize("size", [1, 9, 1000])
def test_thoughts_and_calls_are_items(model: ServedModel, size: int) -> None:
    tools = [{"type": "function", "name": "look", "parameters": SCHEMA}]
    client = client_for(writing(model, REPLY, size))
    whole = ask(client, tools=tools)
    sent = events(client.post(PATH, json={"input": HELLO, "tools": tools, "stream": True}).text)
    for response in (whole, sent[-1]["response"]):
        assert response["status"] == "completed"
        kinds = [item["type"] for item in response["output"]]
        assert kinds == ["reasoning", "message", "function_call", "function_call"]
        assert response["output"][0]["content"][0]["text"] == "Both files are needed."
        assert [json.loads(item["arguments"]) for item in response["output"][2:]] == ARGUMENTS
    added = [one["output_index"] for one in sent if one["type"] == "response.output_item.added"]
    done = [one["output_index"] for one in sent if one["type"] == "response.output_item.done"]
    assert added == done == [0, 1, 2, 3]
    arguments = [one["arguments"] for one in sent if one["type"] == "response.function_call_arguments.done"]
    assert [json.loads(text) for text in arguments] == ARGUMENTS


def test_json_is_held(client: TestClient) -> None:
    schema = {"type": "object", "properties": {"a": {"type": "boolean"}}, "required": ["a"]}
    form = {"type": "json_schema", "name": "x", "schema": schema | {"additionalProperties": False}}
    reply = ask(client, text={"format": form}, max_output_tokens=200)
    assert list(json.loads(reply["output"][0]["content"][0]["text"])) == ["a"]


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"input": ""}, "input"),
        ({"input": []}, "input"),
        ({"input": 3}, "input"),
        ({"input": [{"type": "image_generation_call"}]}, "input[0] is of type image_generation_call"),
        ({"input": [{"role": "robot", "content": "x"}]}, "input[0].role must be"),
        ({"input": [{"role": "user"}]}, "input[0].content must be"),
        ({"input": [{"type": "function_call", "name": "f"}]}, "its arguments as text"),
        ({"input": [{"type": "function_call_output", "output": "x"}]}, "call_id"),
        ({"tools": [{"type": "function"}]}, "tools[0].name"),
        ({"text": {"format": {"type": "yaml"}}}, "text.format"),
        ({"text": {"format": {"type": "json_schema"}}}, "needs a schema"),
        ({"max_output_tokens": 0}, "max_output_tokens"),
        ({"input": "long " * CONTEXT}, "tokens"),
    ],
)
def test_bad_requests(client: TestClient, fields: dict[str, Any], words: str) -> None:
    answer = client.post(PATH, json={"input": HELLO, **fields})
    assert answer.status_code == 400, answer.text
    assert words in answer.json()["error"]["message"]


def test_the_store_is_bounded_and_keeps_keys_apart() -> None:
    store = Store(responses=2)
    for name in "abc":
        store.put("me", ({"role": "user"},), {"id": name})
    assert [bool(store.get(name, "me")) for name in "abc"] == [False, True, True]
    assert store.get("b", "you") is None and not store.remove("b", "you")


def test_the_store_is_bounded_by_the_bytes_of_conversation_and_response() -> None:
    small = Store(size_bytes=60)
    small.put("me", ({"content": "x" * 50},), {"id": "a"})
    assert small.get("a", "me") is None
    small.put("me", ({"content": "x"},), {"id": "b", "output": "x" * 50})
    assert small.get("b", "me") is None, "the response counts"
    small.put("me", ({"content": "ä" * 30},), {"id": "c"})
    assert small.get("c", "me") is None, "bytes count, not characters"
    small.put("me", ({"content": "x"},), {"id": "d"})
    small.put("me", ({"content": "y"},), {"id": "e"})
    kept = small.get("d", "me")
    assert kept and kept.items() == ({"content": "x"},) and kept.size_bytes == 27
    assert small.remove("d", "me") and not small.remove("d", "me")
    small.put("me", ({"content": "z"},), {"id": "f"})
    assert small.get("e", "me"), "what is removed makes room"
    small.put("me", ({"content": 7},), {"id": "g"})
    assert small.get("e", "me") and not small.get("f", "me"), "the longest unused goes"


THOUGHT = "I look at <b>, twice."


@pytest.mark.parametrize("stream", [True, False])
def test_thoughts_are_counted(model: ServedModel, stream: bool) -> None:
    text = f"<think>\n{THOUGHT}\n</think>\n\nDone."
    tokens = model.tokenize(text, special=True, add_bos=False).tolist()
    script = [PrefillDone(REPORT), *spelling(model, tokens), end()]
    scheduler = Scripted(lambda request: script)
    client = client_for(replace(model, scheduler=scheduler, template=ChatTemplate(TEMPLATE, bos="", eos="")))
    answer = client.post(PATH, json={"input": HELLO, "stream": stream})
    usage = (events(answer.text)[-1]["response"] if stream else answer.json())["usage"]
    spelled = len(model.tokenize(THOUGHT, special=False, add_bos=False))
    assert usage["output_tokens_details"]["reasoning_tokens"] == spelled > 3


def spelling(model: ServedModel, tokens: list[int]) -> list[Delta]:
    return [Delta(token, model.vocabulary.pieces[token].decode()) for token in tokens]


def test_tokens_that_spell_thoughts_are_those_between_their_first_and_last_byte(model: ServedModel) -> None:
    vocabulary = Vocabulary(
        pieces=[b"<think>", b"a b", b" c", b"</think>d", b""],
        control=frozenset(),
        end_of_generation=frozenset(),
        bos=None,
        eos=None,
        adds_bos=False,
    )
    one = replace(model, vocabulary=vocabulary)
    assert thought_tokens(one, [0, 1, 2, 3], ["a b c"]) == 2
    assert thought_tokens(one, [0, 1, 4, 2, 3], ["b c"]) == 3
    assert thought_tokens(one, [0, 1, 3, 1, 3], ["a b", "a"]) == 2
    assert thought_tokens(one, [0, 1], [""]) == 0
    assert thought_tokens(one, [0, 1], ["not in it"]) == 2, "never more than the reply has"


def test_what_is_cut_is_incomplete_and_what_was_whole_is_not(model: ServedModel) -> None:
    text = "<think>\nHm.\n</think>\n\nI lo"
    script = [PrefillDone(REPORT), Delta(1, text), end(reason=FinishReason.LENGTH)]
    cut = replace(model, scheduler=Scripted(lambda request: script))
    client = client_for(replace(cut, template=ChatTemplate(TEMPLATE, bos="", eos="")))
    for stream in (True, False):
        answer = client.post(PATH, json={"input": HELLO, "stream": stream})
        response = events(answer.text)[-1]["response"] if stream else answer.json()
        assert response["status"] == "incomplete"
        assert [(one["type"], one["status"]) for one in response["output"]] == [
            ("reasoning", "completed"),
            ("message", "incomplete"),
        ]
        if stream:
            done = [one for one in events(answer.text) if one["type"] == "response.output_item.done"]
            assert [one["item"]["status"] for one in done] == ["completed", "incomplete"]


def test_all_reasoning_of_a_turn_is_kept(model: ServedModel) -> None:
    client = client_for(replace(model, template=ChatTemplate(TEMPLATE, bos="", eos="")))
    thought = [{"type": "reasoning", "content": [{"type": "reasoning_text", "text": word}]} for word in "ab"]
    summed = {"type": "reasoning", "summary": [{"type": "summary_text", "text": "c"}]}
    sent = [{"role": "user", "content": "x"}, *thought, summed, {"role": "assistant", "content": "y"}]
    sent.append({"role": "user", "content": "z"})
    said = [
        {"role": "user", "content": "x"},
        {"role": "assistant", "content": "y", "reasoning_content": "a\nb\nc"},
        {"role": "user", "content": "z"},
    ]
    client.post("/v1/chat/completions", json={"messages": said, "max_tokens": 1})
    usage = ask(client, input=sent, max_output_tokens=1)["usage"]
    assert usage["input_tokens"] == usage["input_tokens_details"]["cached_tokens"] == tokens(client, said)


def test_faults_are_named_as_they_were_sent(model: ServedModel) -> None:
    """Also behind instructions and stored items, which come before them in the prompt."""
    client = client_for(replace(model, template=ChatTemplate(ALTERNATING, bos="", eos="")))
    first = client.post(PATH, json={"input": HELLO, "max_output_tokens": 1, "temperature": 0}).json()
    image = {"role": "user", "content": [{"type": "input_text", "text": "x"}, {"type": "input_image"}]}
    for more in ({}, {"previous_response_id": first["id"]}, {"instructions": "Be kind."}):
        error = client.post(PATH, json={"input": [image], **more}).json()["error"]
        assert error["param"] == "input[0].content[1]" and error["message"].startswith(error["param"])
    twice = [{"role": "user", "content": "x"}] * 2
    error = client.post(PATH, json={"input": twice}).json()["error"]
    assert error["param"] == "input" and "must alternate" in error["message"]
    form = {"type": "json_schema", "name": "x", "schema": {"type": "nonsense"}}
    error = client.post(PATH, json={"input": HELLO, "text": {"format": form}}).json()["error"]
    assert error["param"] == "text.format.schema" and error["message"].startswith("text.format.schema cannot")


def test_what_is_not_to_be_stored_is_not(client: TestClient) -> None:
    kept, other = ask(client), ask(client, store=False)
    assert client.get(f"{PATH}/{kept['id']}").json()["id"] == kept["id"]
    assert client.get(f"{PATH}/{other['id']}").status_code == 404
    assert client.get(f"{PATH}/{kept['id']}", headers={"x-tenant": "you"}).status_code == 404


json_value = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 9) | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
kinds = st.sampled_from(["message", "reasoning", "function_call", "function_call_output", "x"])
item = st.fixed_dictionaries(
    {"type": kinds | json_value},
    optional={
        "role": st.sampled_from(["user", "assistant", "system"]) | json_value,
        "content": json_value,
        "name": json_value,
        "arguments": json_value,
        "call_id": json_value,
        "output": json_value,
        "summary": json_value,
    },
)


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(item, max_size=4) | json_value,
    st.fixed_dictionaries({}, optional={"tools": json_value, "text": json_value, "tool_choice": json_value}),
)
def test_whatever_is_sent_is_answered_or_refused(client: TestClient, sent: Any, more: dict[str, Any]) -> None:
    body = {"input": sent, "max_output_tokens": 1, **more}
    assert client.post(PATH, json=body).status_code in (200, 400)
