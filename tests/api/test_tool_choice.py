"""Replies that must be a call of a tool, held to it while they are decoded."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import anthropic
import openai
import pytest

from headstart.chat.choices import ChatChoices
from headstart.chat.replies.forced import FORCED_FORMATS
from headstart.chat.template import ChatTemplate
from headstart.serving.models import ServedModel
from tests.api.served import app_for, client_for, http_server, served_toy
from tests.api.test_calls import ASKED, TEMPLATE

FLAGS = {
    "type": "object",
    "properties": {"deep": {"type": "boolean"}, "mode": {"enum": ["slow", "fast"]}},
    "required": ["deep", "mode"],
    "additionalProperties": False,
}
TOOLS = [
    {"type": "function", "function": {"name": "look", "parameters": FLAGS}},
    {"type": "function", "function": {"name": 'st"op', "parameters": FLAGS}},
]
NONSENSE = {"type": "nonsense"}
CHAT = "/v1/chat/completions"


@pytest.fixture(scope="module")
def toy() -> Iterator[ServedModel]:
    with served_toy() as model:
        yield replace(model, template=ChatTemplate(TEMPLATE, bos="", eos=""))


def holds(arguments: Any) -> None:
    assert set(arguments) == {"deep", "mode"}
    assert arguments["deep"] in (True, False)
    assert arguments["mode"] in ("slow", "fast")


@pytest.mark.parametrize("form", FORCED_FORMATS)
@pytest.mark.parametrize("stream", [False, True])
def test_a_named_tool_is_called_in_the_models_own_form(toy: ServedModel, form: str, stream: bool) -> None:
    model = replace(toy, chat=ChatChoices(tool_parser=form))
    with http_server(app_for(model)) as url:
        client = openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0)
        asked: dict[str, Any] = {"model": "toy", "messages": ASKED, "tools": TOOLS, "max_tokens": 400}
        asked["tool_choice"] = {"type": "function", "function": {"name": "look"}}
        if stream:
            chunks = list(client.chat.completions.create(**asked, stream=True))
            calls = [call for chunk in chunks for call in chunk.choices[0].delta.tool_calls or []]
            name = calls[0].function and calls[0].function.name
            text = "".join((call.function and call.function.arguments) or "" for call in calls)
            assert chunks[-1].choices[0].finish_reason == "tool_calls"
        else:
            choice = client.chat.completions.create(**asked).choices[0]
            (call,) = choice.message.tool_calls or []
            assert call.type == "function"
            name, text = call.function.name, call.function.arguments
            assert (choice.finish_reason, choice.message.content) == ("tool_calls", None)
    assert name == "look"
    holds(json.loads(text))


def test_any_tool_and_every_dialect(toy: ServedModel) -> None:
    client = client_for(toy)
    names = {tool["function"]["name"] for tool in TOOLS}  # type: ignore[index]
    body = {"messages": ASKED, "tools": TOOLS, "tool_choice": "required", "max_tokens": 400}
    (call,) = client.post(CHAT, json=body).json()["choices"][0]["message"]["tool_calls"]
    assert call["function"]["name"] in names
    holds(json.loads(call["function"]["arguments"]))
    flat = [{"type": "function", **tool["function"]} for tool in TOOLS]  # type: ignore[dict-item]
    for choice in ("required", {"type": "function", "name": "look"}):
        reply = client.post("/v1/responses", json={"input": "x", "tools": flat, "tool_choice": choice}).json()
        (item,) = reply["output"]
        assert item["type"] == "function_call"
        holds(json.loads(item["arguments"]))
    with http_server(app_for(toy)) as url:
        sdk = anthropic.Anthropic(base_url=url, api_key="none", max_retries=0)
        tools: list[Any] = [{"name": "look", "input_schema": FLAGS}]
        for wish in ({"type": "any"}, {"type": "tool", "name": "look"}):
            asked: dict[str, Any] = {"tools": tools, "tool_choice": wish, "messages": ASKED}
            message = sdk.messages.create(model="toy", max_tokens=400, **asked)
            (block,) = message.content
            assert block.type == "tool_use"
            holds(block.input)
            assert message.stop_reason == "tool_use"


def test_thoughts_that_the_prompt_has_opened_end_before_the_call(toy: ServedModel) -> None:
    template = TEMPLATE.replace("<|im_start|>assistant\n", "<|im_start|>assistant\n<think>\n")
    client = client_for(replace(toy, template=ChatTemplate(template, bos="", eos="")))
    body = {"messages": ASKED, "tools": TOOLS, "tool_choice": "required", "max_tokens": 1500, "seed": 3}
    choice = client.post(CHAT, json={**body, "logit_bias": {"60": 4}}).json()["choices"][0]
    if choice["finish_reason"] == "length":
        assert "tool_calls" not in choice["message"], "it was still thinking"
    else:
        holds(json.loads(choice["message"]["tool_calls"][0]["function"]["arguments"]))


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"tool_choice": "required"}, "no tools are offered"),
        ({"tools": TOOLS, "tool_choice": "sometimes"}, "tool_choice must be"),
        ({"tools": TOOLS, "tool_choice": {"function": {"name": "fly"}}}, "there is no tool 'fly'"),
        (
            {"tools": TOOLS, "tool_choice": "required", "response_format": {"type": "json_object"}},
            "cannot be held",
        ),
        (
            {
                "tools": [
                    {"type": "function", "function": {"name": "a", "parameters": {"type": "nonsense"}}}
                ],
                "tool_choice": "required",
            },
            "schemas cannot be held",
        ),
    ],
)
def test_what_cannot_be_required_is_refused(toy: ServedModel, fields: dict[str, Any], words: str) -> None:
    answer = client_for(toy).post(CHAT, json={"messages": ASKED, **fields})
    assert answer.status_code == 400
    assert words in answer.json()["error"]["message"]


@pytest.mark.parametrize("form", ["qwen-xml", "pythonic", "none"])
def test_a_form_that_cannot_be_held_says_what_to_do(toy: ServedModel, form: str) -> None:
    model = replace(toy, chat=ChatChoices(tool_parser=form))
    body = {"messages": ASKED, "tools": TOOLS, "tool_choice": "required"}
    error = client_for(model).post(CHAT, json=body).json()["error"]
    assert form in error["message"] and "--tool-parser" in error["message"]
