"""Thoughts and calls of tools, from what a model writes to what each dialect says."""

from __future__ import annotations

import json
import queue
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import anthropic
import openai
import pytest

from headstart.chat.choices import ChatChoices
from headstart.chat.replies.format import marking_tokens
from headstart.chat.replies.syntax import REASONING_FORMATS, TOOL_FORMATS
from headstart.chat.stream import TextStream
from headstart.chat.template import ChatTemplate
from headstart.chat.tool_order import ToolOrder
from headstart.config import OPTIONS
from headstart.engines.base import Vocabulary
from headstart.serving.models import ServedModel
from headstart.serving.request import Delta, Event, Finished, GenerationRequest, Sampling
from tests.api.served import Scripted, app_for, client_for, http_server, served_toy
from tests.api.test_openai_stream import said

TEMPLATE = (
    "{% for tool in tools or [] %}{{ tool | tojson }}\n{% endfor %}"
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content or '' }}"
    "{% if m.reasoning_content %}<think>{{ m.reasoning_content }}</think>{% endif %}"
    "{% for c in m.tool_calls or [] %}<tool_call>{{ c.function | tojson }}</tool_call>{% endfor %}"
    "<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n"
    "{% if enable_thinking is defined and not enable_thinking %}<think>\n\n</think>\n\n{% endif %}{% endif %}"
)
REPLY = (
    "<think>\nBoth files are needed.\n</think>\n\nI look at both.\n"
    '<tool_call>\n{"name": "look", "arguments": {"path": "a.py", "lines": [1, 2]}}\n</tool_call>\n'
    '<tool_call>\n{"name": "look", "arguments": {"path": "b.py"}}\n</tool_call>'
)
ARGUMENTS = [{"path": "a.py", "lines": [1, 2]}, {"path": "b.py"}]
SCHEMA = {"type": "object", "properties": {"path": {"type": "string"}}}
TOOLS = [{"type": "function", "function": {"name": "look", "description": "looks", "parameters": SCHEMA}}]
ASKED: list[Any] = [{"role": "user", "content": "What is in a.py and b.py?"}]


@pytest.fixture(scope="module")
def toy() -> Iterator[ServedModel]:
    with served_toy() as model:
        yield model


def writing(toy: ServedModel, text: str, size: int = 5, template: str = TEMPLATE) -> ServedModel:
    """A model that writes `text`, in pieces of so many characters."""
    pieces = [text[at : at + size] for at in range(0, len(text), size)]
    scheduler = Scripted(lambda request: said(*pieces))
    return replace(toy, scheduler=scheduler, template=ChatTemplate(template, bos="", eos=""))


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_openais_sdk_gets_thoughts_text_and_calls(toy: ServedModel, size: int) -> None:
    with http_server(app_for(writing(toy, REPLY, size))) as url:
        client = openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0)
        asked: dict[str, Any] = {"model": "toy", "messages": ASKED, "tools": TOOLS}
        choice = client.chat.completions.create(**asked).choices[0]
        chunks = list(client.chat.completions.create(**asked, stream=True))
    message = choice.message
    assert choice.finish_reason == "tool_calls"
    assert message.content is not None and message.content.strip() == "I look at both."
    assert message.model_extra and message.model_extra["reasoning_content"] == "Both files are needed."
    calls = [call for call in message.tool_calls or [] if call.type == "function"]
    assert [call.function.name for call in calls] == ["look", "look"]
    assert [json.loads(call.function.arguments) for call in calls] == ARGUMENTS
    assert len({call.id for call in calls}) == 2

    deltas = [chunk.choices[0].delta for chunk in chunks if chunk.choices]
    assert "".join(delta.content or "" for delta in deltas).strip() == "I look at both."
    thoughts = "".join((delta.model_extra or {}).get("reasoning_content") or "" for delta in deltas)
    assert thoughts == "Both files are needed."
    streamed: dict[int, str] = {}
    for delta in deltas:
        for call in delta.tool_calls or []:
            assert call.function is not None
            streamed[call.index] = streamed.get(call.index, "") + (call.function.arguments or "")
    assert [json.loads(text) for text in streamed.values()] == ARGUMENTS
    assert chunks[-1].choices[0].finish_reason == "tool_calls"


def test_anthropics_sdk_gets_them_as_blocks(toy: ServedModel) -> None:
    tools: list[Any] = [{"name": "look", "description": "looks", "input_schema": SCHEMA}]
    with http_server(app_for(writing(toy, REPLY))) as url:
        client = anthropic.Anthropic(base_url=url, api_key="none", max_retries=0)
        asked: dict[str, Any] = {"model": "toy", "max_tokens": 99, "messages": ASKED, "tools": tools}
        whole = client.messages.create(**asked)
        with client.messages.stream(**asked) as stream:
            streamed = stream.get_final_message()
    for message in (whole, streamed):
        assert message.stop_reason == "tool_use"
        assert [block.type for block in message.content] == ["thinking", "text", "tool_use", "tool_use"]
        assert [block.input for block in message.content if block.type == "tool_use"] == ARGUMENTS
        (thought,) = (block.thinking for block in message.content if block.type == "thinking")
        assert thought == "Both files are needed."


@pytest.mark.parametrize("streams", [True, False])
def test_ollama_gets_them_as_objects(toy: ServedModel, streams: bool) -> None:
    body = {"model": "toy", "messages": ASKED, "tools": TOOLS, "stream": streams}
    answer = client_for(writing(toy, REPLY)).post("/api/chat", json=body)
    lines = [json.loads(line) for line in answer.text.splitlines()]
    messages = [line["message"] for line in lines]
    assert "".join(one["content"] for one in messages).strip() == "I look at both."
    assert "".join(one.get("thinking", "") for one in messages) == "Both files are needed."
    calls = [call["function"] for one in messages for call in one.get("tool_calls", ())]
    assert calls == [{"name": "look", "arguments": arguments} for arguments in ARGUMENTS]
    assert lines[-1]["done"]


def test_without_tools_or_with_tool_choice_none_a_call_is_text(toy: ServedModel) -> None:
    client = client_for(writing(toy, REPLY))
    for fields in ({}, {"tools": TOOLS, "tool_choice": "none"}):
        body = {"messages": ASKED, **fields}
        choice = client.post("/v1/chat/completions", json=body).json()["choices"][0]
        assert "<tool_call>" in choice["message"]["content"]
        assert choice["finish_reason"] == "stop"
    same = [
        client.post("/tokenize", json={"messages": ASKED, "tools": TOOLS}).json()["count"],
        client.post("/v1/chat/completions", json=body).json()["usage"]["prompt_tokens"],
    ]
    assert same[0] > 0, "the tools stay in the prompt, so that it stays the same"


def test_a_call_that_breaks_off_is_text_and_a_warning(toy: ServedModel) -> None:
    broken = '<tool_call>\n{"name": "look", "arguments": {"path": "a.'
    client = client_for(writing(toy, broken))
    reply = client.post("/v1/chat/completions", json={"messages": ASKED, "tools": TOOLS}).json()
    (choice,) = reply["choices"]
    assert choice["message"]["content"] == broken
    assert "tool_calls" not in choice["message"]
    assert choice["finish_reason"] == "stop"
    assert "could not be read" in reply["headstart"]["warnings"][0]
    asked = {"max_tokens": 99, "messages": ASKED, "tools": [{"name": "look", "input_schema": SCHEMA}]}
    message = client.post("/v1/messages", json=asked).json()
    assert [block["type"] for block in message["content"]] == ["text"]
    assert (message["content"][0]["text"], message["stop_reason"]) == (broken, "end_turn")


def test_thinking_is_switched_by_every_dialect(toy: ServedModel) -> None:
    model = writing(toy, "Yes.")
    client = client_for(model)
    assert model.thinking.switch
    asked: list[tuple[str, dict[str, Any]]] = [
        ("/v1/chat/completions", {"chat_template_kwargs": {"enable_thinking": False}}),
        ("/v1/chat/completions", {"reasoning_effort": "none"}),
        ("/v1/messages", {"thinking": {"type": "disabled"}, "max_tokens": 5}),
        ("/api/chat", {"think": False, "stream": False}),
    ]
    requests = model.scheduler.requests  # type: ignore[attr-defined]
    for path, fields in asked:
        assert client.post(path, json={"messages": ASKED, **fields}).status_code == 200
        text = toy.text_of(requests[-1].prompt)
        assert text.endswith("<think>\n\n</think>\n\n"), path


def test_a_prompt_that_ends_inside_the_thoughts(toy: ServedModel) -> None:
    template = TEMPLATE.replace("assistant\n{%", "assistant\n<think>\n{%", 1).replace(
        "<|im_start|>assistant\n", "<|im_start|>assistant\n<think>\n"
    )
    client = client_for(writing(toy, "I wonder.\n</think>\n\nIt is wet.", template=template))
    message = client.post("/v1/chat/completions", json={"messages": ASKED}).json()["choices"][0]["message"]
    assert (message["reasoning_content"], message["content"]) == ("I wonder.", "It is wet.")


def test_control_tokens_that_mark_calls_are_seen_and_others_are_not() -> None:
    pieces = [
        b"<|im_end|>",
        b"[TOOL_CALLS]",
        b"<|python_tag|>",
        b"a",
        b"<|im_start|>",
        b"</think>",
        b"[ARGS]",
    ]
    vocabulary = Vocabulary(pieces, frozenset({0, 1, 2, 4, 5, 6}), frozenset({0}), None, 0, adds_bos=False)
    shown = marking_tokens(vocabulary, harmony=False)
    assert shown == {1, 2, 5, 6}
    seen, plain = TextStream(vocabulary, (), shown), TextStream(vocabulary, ())
    assert "".join(seen.push(token) for token in range(7)) == "[TOOL_CALLS]<|python_tag|>a</think>[ARGS]"
    assert "".join(plain.push(token) for token in range(7)) == "a"


def test_mistral_calls_by_a_control_token(toy: ServedModel) -> None:
    template = TEMPLATE.replace("<tool_call>", "[TOOL_CALLS]").replace("</tool_call>", "")
    reply = '[TOOL_CALLS] [{"name": "look", "arguments": {"path": "a.py"}}]'
    client = client_for(writing(toy, reply, template=template))
    choice = client.post("/v1/chat/completions", json={"messages": ASKED, "tools": TOOLS}).json()["choices"][
        0
    ]
    (call,) = choice["message"]["tool_calls"]
    assert json.loads(call["function"]["arguments"]) == {"path": "a.py"}
    assert choice["message"]["content"] is None


def test_the_scheduler_shows_what_a_request_asks_to_see(toy: ServedModel) -> None:
    """Two replies of one control token, which is no end: spelled in one, unseen in the other."""
    vocabulary = toy.vocabulary
    (control, *_) = sorted(vocabulary.control - vocabulary.end_of_generation)
    texts = []
    for shown in (frozenset({control}), frozenset[int]()):
        request = GenerationRequest(
            prompt=toy.tokenize_prompt("Go on."),
            max_tokens=2,
            sampling=Sampling(temperature=0, logit_bias={control: 100.0}),
            shown=shown,
        )
        events: queue.SimpleQueue[Event] = queue.SimpleQueue()
        toy.scheduler.submit(request, events.put)
        text = ""
        while not isinstance(event := events.get(timeout=20), Finished):
            text += event.text if isinstance(event, Delta) else ""
        texts.append(text + event.tail)
    assert texts == [2 * vocabulary.pieces[control].decode(), ""]


def test_tools_in_another_order_are_read_as_they_first_were(toy: ServedModel) -> None:
    """In every dialect, and only where nobody wants them as they are sent."""
    two = [TOOLS[0], {"type": "function", "function": {"name": "stop", "parameters": SCHEMA}}]
    flat = [{"type": "function", **one["function"]} for one in two]
    named = [{"name": one["function"]["name"], "input_schema": SCHEMA} for one in two]  # type: ignore[index]
    asked: list[tuple[str, str, list[Any], dict[str, Any]]] = [
        ("/v1/chat/completions", "messages", two, {"max_tokens": 1}),
        ("/v1/responses", "input", flat, {"max_output_tokens": 1}),
        ("/v1/messages", "messages", named, {"max_tokens": 1}),
        ("/api/chat", "messages", two, {"stream": False, "options": {"num_predict": 1}}),
    ]
    for sent, rearranges in ((False, True), (True, False)):
        model = writing(toy, "Yes.")
        model = replace(model, chat=ChatChoices(tools_as_sent=sent), tool_order=ToolOrder())
        client = client_for(model)
        requests = model.scheduler.requests  # type: ignore[attr-defined]
        for path, name, tools, more in asked:
            first = client.post(path, json={name: ASKED, "tools": tools, **more}).json()
            again = client.post(path, json={name: ASKED, "tools": tools[::-1], **more}).json()
            assert (requests[-1].prompt.tolist() == requests[-2].prompt.tolist()) is rearranges, path
            warned = [one for one in again.get("headstart", {}).get("warnings", ()) if "order" in one]
            assert len(warned) == rearranges, path
            assert not any("order" in one for one in first.get("headstart", {}).get("warnings", ()))


def test_the_form_of_calls_can_be_chosen(toy: ServedModel) -> None:
    model = replace(writing(toy, REPLY), chat=ChatChoices(tool_parser="none", reasoning_parser="none"))
    body = {"messages": ASKED, "tools": TOOLS}
    message = client_for(model).post("/v1/chat/completions", json=body).json()["choices"][0]["message"]
    assert message["content"] == REPLY
    assert set(TOOL_FORMATS) | set(REASONING_FORMATS) <= set(
        re.findall(r"[\w-]+", " ".join(one.help for one in OPTIONS if one.field_name.endswith("_parser")))
    )


@pytest.mark.parametrize(
    "arguments",
    [
        '{"a": "\\ud800"}',
        '{"a": NaN}',
        '{"a": 1e999}',
        '{"a": ' + "[" * 250 + "]" * 250 + "}",
        '{"path": "a.',
    ],
)
@pytest.mark.parametrize("streams", [True, False])
def test_calls_that_not_every_reader_takes_end_a_reply_in_order(
    toy: ServedModel, arguments: str, streams: bool
) -> None:
    """Cut off, or JSON for Python alone: text, and a whole reply all the same."""
    end = "" if arguments.endswith(".") else "}\n</tool_call>"
    client = client_for(writing(toy, f'<tool_call>\n{{"name": "look", "arguments": {arguments}{end}'))
    named = [{"name": "look", "input_schema": SCHEMA}]
    flat = [{"type": "function", "name": "look", "parameters": SCHEMA}]
    asked: list[tuple[str, dict[str, Any], str]] = [
        ("/v1/messages", {"messages": ASKED, "tools": named, "max_tokens": 99}, "message_stop"),
        ("/v1/responses", {"input": "x", "tools": flat}, "response.completed"),
        ("/api/chat", {"messages": ASKED, "tools": TOOLS}, '"done":true'),
        ("/v1/chat/completions", {"messages": ASKED, "tools": TOOLS}, "[DONE]"),
    ]
    for path, body, last in asked:
        answer = client.post(path, json={**body, "stream": streams})
        assert answer.status_code == 200, (path, answer.text)
        if streams:
            assert last in answer.text, path
        if path != "/v1/chat/completions":
            assert '"tool_use"' not in answer.text.replace('"stop_reason":"tool_use"', "")
            assert '"type":"function_call"' not in answer.text


def test_a_history_with_arguments_nested_without_end_is_taken(toy: ServedModel) -> None:
    deep = '{"a": ' + "[" * 3000 + "]" * 3000 + "}"
    call = {"id": "c", "type": "function", "function": {"name": "look", "arguments": deep}}
    messages = [*ASKED, {"role": "assistant", "content": None, "tool_calls": [call]}]
    answer = client_for(writing(toy, "Yes.")).post("/v1/chat/completions", json={"messages": messages})
    assert answer.status_code in (200, 400)
