"""Anthropic's replies that go on with the last message, and signatures of thoughts."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import anthropic
import pytest
from fastapi.testclient import TestClient

from headstart.api.anthropic_stream import signature_of
from headstart.chat.template import ChatTemplate
from headstart.serving.models import ServedModel
from tests.api.served import Scripted, app_for, client_for, http_server, served_toy
from tests.api.test_calls import REPLY, SCHEMA, TEMPLATE, writing
from tests.api.test_openai_stream import said
from tests.chat.templates import ALTERNATING, PARTS_ONLY

PATH = "/v1/messages"
USER = {"role": "user", "content": "Name a colour as JSON."}
CALL = {"type": "tool_use", "id": "a", "name": "f", "input": {}}
BEGUN = '{"colour":'
HARMONY = "{% for m in messages %}<|start|>{{ m.role }}<|channel|>final<|message|>{{ m.content }}{% endfor %}"


@pytest.fixture(scope="module")
def toy() -> Iterator[ServedModel]:
    with served_toy() as model:
        yield model


def with_template(toy: ServedModel, source: str) -> tuple[TestClient, Scripted]:
    scheduler = Scripted(lambda request: said(' "red"}'))
    template = ChatTemplate(source, bos="", eos="")
    return client_for(replace(toy, scheduler=scheduler, template=template)), scheduler


def body(content: Any, **more: Any) -> dict[str, Any]:
    return {"max_tokens": 9, "messages": [USER, {"role": "assistant", "content": content}], **more}


def text(words: str) -> dict[str, str]:
    return {"type": "text", "text": words}


@pytest.mark.parametrize("template", [TEMPLATE, ALTERNATING, PARTS_ONLY])
@pytest.mark.parametrize("content", [BEGUN, [text("As asked."), text(BEGUN)]])
def test_the_prompt_ends_inside_the_last_message(toy: ServedModel, template: str, content: Any) -> None:
    client, scheduler = with_template(toy, template)
    answer = client.post(PATH, json=body(content))
    assert answer.status_code == 200, answer.text
    assert answer.json()["content"][0]["text"] == ' "red"}', "only what is new"
    prompt = toy.text_of(scheduler.requests[-1].prompt)
    assert prompt.endswith(BEGUN) and prompt.count(BEGUN) == 1
    counted = client.post(f"{PATH}/count_tokens", json=body(content)).json()
    assert counted["input_tokens"] == len(scheduler.requests[-1].prompt)


def test_a_reply_and_the_next_turn_go_on_from_what_was_read(toy: ServedModel) -> None:
    client = client_for(toy)
    fields: dict[str, Any] = {"temperature": 0}
    before = client.post(PATH, json={"max_tokens": 1, "messages": [USER], **fields}).json()["usage"]
    begun = client.post(PATH, json=body(BEGUN, **fields)).json()
    prompt = sum(value for name, value in before.items() if name != "output_tokens")
    assert begun["usage"]["cache_read_input_tokens"] >= prompt, "all of the prompt without what was begun"
    whole = BEGUN + begun["content"][0]["text"]
    following = [USER, {"role": "assistant", "content": whole}, {"role": "user", "content": "And one more."}]
    then = client.post(PATH, json={"max_tokens": 1, "messages": following, **fields}).json()["usage"]
    read = sum(value for name, value in begun["usage"].items())
    assert then["cache_read_input_tokens"] >= read - 2, "the reply too, but for its end"


@pytest.mark.parametrize(
    ("template", "content", "words"),
    [
        (TEMPLATE, BEGUN + " ", "white space"),
        (TEMPLATE, [text("x"), CALL], "send their results"),
        (TEMPLATE, [{"type": "thinking", "thinking": "Hm."}], "ends with thinking"),
        (HARMONY, BEGUN, "writes in channels"),
        (TEMPLATE.replace("m.content or ''", "(m.content or '') | tojson"), '"a"', "end the conversation"),
        (TEMPLATE.replace("m.content or ''", "''"), BEGUN, "end the conversation"),
    ],
)
def test_what_cannot_go_on_is_refused(toy: ServedModel, template: str, content: Any, words: str) -> None:
    client, _ = with_template(toy, template)
    answer = client.post(PATH, json=body(content))
    assert answer.status_code == 400
    error = answer.json()["error"]
    assert error["type"] == "invalid_request_error" and words in error["message"]
    if words != "end the conversation":
        assert error["message"].startswith("messages[1]: ")
        counted = client.post(f"{PATH}/count_tokens", json=body(content))
        assert counted.json()["input_tokens"] > 0, "whatever was said can be counted"


@pytest.mark.parametrize("content", ["", [], [text("")]])
def test_an_empty_last_message_asks_for_a_reply(toy: ServedModel, content: Any) -> None:
    client, scheduler = with_template(toy, TEMPLATE)
    assert client.post(PATH, json=body(content)).status_code == 200
    client.post(PATH, json={"max_tokens": 9, "messages": [USER]})
    first, second = scheduler.requests
    assert first.prompt.tolist() == second.prompt.tolist()
    only = {"max_tokens": 9, "messages": [{"role": "assistant", "content": content}]}
    assert client.post(PATH, json=only).status_code == 200


def test_thoughts_that_cannot_come_are_said(toy: ServedModel) -> None:
    client, _ = with_template(toy, TEMPLATE)
    thinking = {"thinking": {"type": "enabled", "budget_tokens": 1024}}
    (warning,) = client.post(PATH, json=body(BEGUN, **thinking)).json()["headstart"]["warnings"]
    assert warning.startswith("thinking: the reply goes on")


def test_thoughts_are_signed_streamed_or_not_and_signatures_change_nothing(toy: ServedModel) -> None:
    model = writing(toy, REPLY)
    tools: list[Any] = [{"name": "look", "input_schema": SCHEMA}]
    asked: dict[str, Any] = {"model": "toy", "max_tokens": 99, "messages": [USER], "tools": tools}
    with http_server(app_for(model)) as url:
        sdk = anthropic.Anthropic(base_url=url, api_key="none", max_retries=0)
        whole = sdk.messages.create(**asked)
        with sdk.messages.stream(**asked) as stream:
            signed = [event.signature for event in stream if event.type == "signature"]
            streamed = stream.get_final_message()
    signature = signature_of("Both files are needed.")
    assert len(signature) == 44 and signed == [signature]
    for message in (whole, streamed):
        assert message.content[0].type == "thinking" and message.content[0].signature == signature
    frames = client_for(model).post(PATH, json={**asked, "stream": True}).text.strip().split("\n\n")
    events = [json.loads(frame.split("data: ")[1]) for frame in frames]
    at = next(n for n, one in enumerate(events) if one.get("delta", {}).get("type") == "signature_delta")
    assert events[at + 1] == {"type": "content_block_stop", "index": 0} and events[at]["index"] == 0

    client, scheduler = with_template(toy, TEMPLATE)
    for signed_as in (signature, "another's", None):
        thought = {"type": "thinking", "thinking": "Hm.", "signature": signed_as}
        history = [USER, {"role": "assistant", "content": [thought, text("Red.")]}, USER]
        assert client.post(PATH, json={"max_tokens": 1, "messages": history}).status_code == 200
    first, *others = (request.prompt.tolist() for request in scheduler.requests)
    assert others == [first, first]
