"""What cannot be served as sent: in every dialect a 400 in its own shape that says what to change."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import pytest
from fastapi.testclient import TestClient

from headstart.chat.choices import ChatChoices
from headstart.chat.template import ChatTemplate
from headstart.serving.models import ServedModel
from tests.api.served import client_for, served_toy
from tests.api.test_calls import TEMPLATE, writing
from tests.api.test_tool_results import message_of
from tests.chat.templates import ALTERNATING, REASONING

NONSENSE = {"type": "nonsense"}
IMAGE = {
    "/v1/chat/completions": {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}},
    "/v1/messages": {"type": "image", "source": {"type": "base64", "data": "AAAA"}},
    "/v1/responses": {"type": "input_image", "image_url": "data:image/png;base64,AAAA"},
}


@dataclass(frozen=True)
class Dialect:
    """Where a conversation goes and in which field; the fewest other fields that are needed."""

    path: str
    field: str = "messages"
    needed: tuple[tuple[str, Any], ...] = ()

    def body(self, messages: Any, **more: Any) -> dict[str, Any]:
        return {self.field: messages, **dict(self.needed), **more}


CHAT = Dialect("/v1/chat/completions")
MESSAGES = Dialect("/v1/messages", needed=(("max_tokens", 1),))
RESPONSES = Dialect("/v1/responses", "input")
OLLAMA = Dialect("/api/chat", needed=(("stream", False), ("options", {"num_predict": 1})))
DIALECTS = pytest.mark.parametrize("dialect", [CHAT, MESSAGES, RESPONSES, OLLAMA], ids=lambda one: one.path)
USER = {"role": "user", "content": "Look."}


@pytest.fixture(scope="module")
def toy() -> Iterator[ServedModel]:
    with served_toy() as model:
        yield model


@pytest.fixture(scope="module")
def client(toy: ServedModel) -> TestClient:
    return with_template(toy, TEMPLATE)


def with_template(toy: ServedModel, source: str) -> TestClient:
    return client_for(replace(toy, template=ChatTemplate(source, bos="", eos="")))


@DIALECTS
def test_images_for_a_text_model(client: TestClient, dialect: Dialect) -> None:
    if dialect is OLLAMA:
        said = {**USER, "images": ["AAAA"]}
        place = "messages[1].images"
    else:
        said = {"role": "user", "content": [IMAGE[dialect.path]]}
        place = f"{dialect.field}[1].content[0]"
    words = message_of(client.post(dialect.path, json=dialect.body([USER, said])))
    assert "text only" in words and place in words and "AAAA" not in words


def test_images_for_a_prompt_of_ollamas(client: TestClient) -> None:
    words = message_of(client.post("/api/generate", json={"prompt": "x", "images": ["AAAA"]}))
    assert "text only" in words


@pytest.mark.parametrize(
    ("dialect", "fields", "words"),
    [
        (
            CHAT,
            {
                "tools": [{"type": "function", "function": {"name": "a", "parameters": NONSENSE}}],
                "tool_choice": "required",
            },
            "the tools' schemas cannot be held",
        ),
        (
            MESSAGES,
            {"tools": [{"name": "a", "input_schema": NONSENSE}], "tool_choice": {"type": "any"}},
            "the tools' schemas cannot be held",
        ),
        (
            RESPONSES,
            {"tools": [{"type": "function", "name": "a", "parameters": NONSENSE}], "tool_choice": "required"},
            "the tools' schemas cannot be held",
        ),
        (OLLAMA, {"format": NONSENSE}, "format cannot be compiled"),
    ],
)
def test_a_schema_that_cannot_be_compiled(
    client: TestClient, dialect: Dialect, fields: dict[str, Any], words: str
) -> None:
    said = message_of(client.post(dialect.path, json=dialect.body([USER], **fields)))
    assert words in said and "nonsense" in said and "response_format" not in said


@pytest.mark.parametrize("schema", [3, "x", [1], None, True, {}, NONSENSE, {"properties": {"path": 3}}])
@pytest.mark.parametrize("form", ["qwen-xml", "hermes"])
def test_any_schema_will_do_where_nothing_is_held_to_it(toy: ServedModel, schema: Any, form: str) -> None:
    reply = "<tool_call>\n<function=look>\n<parameter=path>\n1\n</parameter>\n</function>\n</tool_call>"
    if form == "hermes":
        reply = '<tool_call>{"name": "look", "arguments": {"path": 1}}</tool_call>'
    client = client_for(replace(writing(toy, reply), chat=ChatChoices(tool_parser=form)))
    tools = [{"type": "function", "function": {"name": "look", "parameters": schema}}]
    for dialect in (CHAT, OLLAMA):
        answer = client.post(dialect.path, json=dialect.body([USER], tools=tools))
        assert answer.status_code == 200, answer.text
    flat = [{"type": "function", "name": "look", "parameters": schema}]
    assert client.post(RESPONSES.path, json=RESPONSES.body([USER], tools=flat)).status_code == 200
    status = client.post(
        MESSAGES.path, json=MESSAGES.body([USER], tools=[{"name": "look", "input_schema": schema}])
    ).status_code
    assert status == (200 if isinstance(schema, dict) else 400)


@pytest.mark.parametrize("limit", [0, -1, 2.5, "9", True, 2**70])
@pytest.mark.parametrize(
    ("dialect", "name"),
    [
        (CHAT, "max_tokens"),
        (CHAT, "max_completion_tokens"),
        (MESSAGES, "max_tokens"),
        (RESPONSES, "max_output_tokens"),
    ],
)
def test_a_limit_that_is_no_positive_whole_number(
    client: TestClient, dialect: Dialect, name: str, limit: Any
) -> None:
    answer = client.post(dialect.path, json=dialect.body([USER], **{name: limit}))
    if limit == 2**70:
        assert answer.status_code in (200, 400)
    else:
        assert message_of(answer).startswith(name)


@pytest.mark.parametrize("limit", [0, -1, "9", True])
def test_a_limit_of_completions(client: TestClient, limit: Any) -> None:
    words = message_of(client.post("/v1/completions", json={"prompt": "x", "max_tokens": limit}))
    assert words.startswith("max_tokens")


@pytest.mark.parametrize("limit", [-3, 2.5, "9", True])
def test_ollamas_limit(client: TestClient, limit: Any) -> None:
    """0, -1 and -2 are no limit there."""
    body = OLLAMA.body([USER], options={"num_predict": limit})
    assert "options.num_predict must be a whole number" in message_of(client.post("/api/chat", json=body))


@DIALECTS
@pytest.mark.parametrize("calls", [False, True])
def test_ten_thousand_messages(client: TestClient, dialect: Dialect, calls: bool) -> None:
    said = [{"role": ("user", "assistant")[n % 2], "content": "x"} for n in range(9_999)]
    if calls:
        said = [message for n in range(3_333) for message in turn(dialect, f"c{n}")]
    begun_s = time.monotonic()
    words = message_of(client.post(dialect.path, json=dialect.body([*said, USER])))
    assert "tokens" in words and "--ctx-size" in words
    assert time.monotonic() - begun_s < 20, "no work that grows with their square"


def turn(dialect: Dialect, name: str) -> list[dict[str, Any]]:
    """A user's message, a call and its result."""
    if dialect is RESPONSES:
        call = {"type": "function_call", "call_id": name, "name": "look", "arguments": "{}"}
        return [USER, call, {"type": "function_call_output", "call_id": name, "output": "x"}]
    if dialect is MESSAGES:
        use = {"type": "tool_use", "id": name, "name": "look", "input": {}}
        result = {"type": "tool_result", "tool_use_id": name, "content": "x"}
        said = {"role": "assistant", "content": [use]}
        return [USER, said, {"role": "user", "content": [result]}]
    function = {"name": "look", "arguments": "{}" if dialect is CHAT else {}}
    calling = {"role": "assistant", "content": "", "tool_calls": [{"id": name, "function": function}]}
    return [USER, calling, {"role": "tool", "tool_call_id": name, "content": "x"}]


@DIALECTS
@pytest.mark.parametrize(
    ("source", "messages", "words"),
    [
        (ALTERNATING, [USER, USER], "roles must alternate"),
        (ALTERNATING, [USER, {"role": "assistant", "content": "x"}, USER, USER], "roles must alternate"),
        (REASONING, [{"role": "system", "content": "x"}], "No user query found"),
    ],
)
def test_a_template_that_refuses_the_order(
    toy: ServedModel, dialect: Dialect, source: str, messages: list[Any], words: str
) -> None:
    client = with_template(toy, source)
    said = message_of(client.post(dialect.path, json=dialect.body(messages)))
    assert "the chat template refused" in said and words in said and "--chat-template" in said


@DIALECTS
def test_the_next_request_is_answered(client: TestClient, dialect: Dialect) -> None:
    message_of(client.post(dialect.path, json=dialect.body([{"role": "robot", "content": "x"}])))
    assert client.post(dialect.path, json=dialect.body([USER])).status_code == 200
