"""Reports name what was left out or moved, and what thoughts that a template leaves out cost."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from fastapi.testclient import TestClient

from headstart.api.tool_results import REORDERED
from headstart.chat.choices import ChatChoices
from headstart.chat.template import ChatTemplate
from headstart.serving.models import ServedModel
from tests.api.served import Scripted, client_for, served_toy
from tests.api.test_calls import SCHEMA
from tests.api.test_openai_stream import said
from tests.chat.templates import REASONING

CHAT = "/v1/chat/completions"
USER = {"role": "user", "content": "What is in the file?"}
THOUGHT = {"role": "assistant", "content": "It is empty, as far as I see.", "reasoning_content": "I look."}
NEXT = {"role": "user", "content": "And in the other one?"}
KEEPING = REASONING.replace(
    "loop.index0 > ns.last", "(loop.index0 > ns.last or preserve_thinking is defined and preserve_thinking)"
)


@pytest.fixture(scope="module")
def toy() -> Iterator[ServedModel]:
    with served_toy() as model:
        yield model


def client(toy: ServedModel, source: str) -> TestClient:
    return client_for(replace(toy, template=ChatTemplate(source, bos="", eos="")))


def report(client: TestClient, messages: list[Any], **more: Any) -> dict[str, Any]:
    fields: dict[str, Any] = {"max_tokens": 1, "temperature": 0, "headstart": {"report": True}, **more}
    reply = client.post(CHAT, json={"messages": messages, **fields}).json()
    told: dict[str, Any] = reply["headstart"]["report"]
    assert client.get(f"/v1/headstart/requests/{reply['id']}").json()["replies"] == [told]
    return told


def test_the_tokens_behind_a_thought_that_is_left_out_are_named(toy: ServedModel) -> None:
    asking = client(toy, REASONING)
    assert report(asking, [USER, THOUGHT])["notes"] == [], "it is the running turn's"
    told = report(asking, [USER, THOUGHT, NEXT])
    (note,) = told["notes"]
    assert told["divergence_message"] == 1
    # All of the prompt behind the divergence but the new message and the beginning of the reply.
    new = f"\n<|im_start|>user\n{NEXT['content']}<|im_end|>\n<|im_start|>assistant\n<think>\n"
    behind = told["new"] - len(toy.tokenize(new, special=True, add_bos=False))
    assert behind > 20
    assert f"thoughts of 1 earlier messages; {behind} tokens behind them were read again" in note
    assert "cannot keep them" in note


def test_nothing_was_read_again_where_they_were_left_out_before(toy: ServedModel) -> None:
    asking = client(toy, REASONING)
    talk = [{**USER, "content": "Another one?"}, THOUGHT, NEXT]
    report(asking, talk)
    (note,) = report(asking, [*talk[:2], {**NEXT, "content": "Or else?"}])["notes"]
    assert "; 0 tokens behind them" in note
    (note,) = report(asking, [{**USER, "content": "Another two?"}, *talk[1:]])["notes"]
    assert "; 0 tokens behind them" in note, "what the client edited is no cost of thoughts"


def test_thoughts_that_are_kept_or_never_were_cost_nothing(toy: ServedModel) -> None:
    asking = client(toy, KEEPING)
    talk = [USER, THOUGHT, NEXT]
    (note,) = report(asking, talk)["notes"]
    assert "--preserve-thinking on keeps them" in note
    assert report(asking, talk, chat_template_kwargs={"preserve_thinking": True})["notes"] == []
    bare = {"role": "assistant", "content": "It is empty."}
    assert report(asking, [USER, bare, NEXT])["notes"] == []


@pytest.mark.parametrize("preserve", [True, False, None])
def test_whoever_starts_the_server_decides_in_every_dialect(toy: ServedModel, preserve: bool | None) -> None:
    scheduler = Scripted(lambda request: said("Yes."))
    model = replace(toy, scheduler=scheduler, template=ChatTemplate(KEEPING, bos="", eos=""))
    asking = client_for(replace(model, chat=ChatChoices(preserve_thinking=preserve)))
    thought = [{"type": "thinking", "thinking": "I look."}, {"type": "text", "text": "It is empty."}]
    talk = [USER, THOUGHT, NEXT]
    reasoning = {"type": "reasoning", "content": [{"type": "reasoning_text", "text": "I look."}]}
    items = [USER, reasoning, {**THOUGHT, "type": "message"}, NEXT]
    asking.post(CHAT, json={"messages": talk})
    asking.post("/v1/responses", json={"input": items})
    blocks = [USER, {"role": "assistant", "content": thought}, NEXT]
    asking.post("/v1/messages", json={"max_tokens": 1, "messages": blocks})
    thinking = {"role": "assistant", "content": "It is empty.", "thinking": "I look."}
    asking.post("/api/chat", json={"messages": [USER, thinking, NEXT], "stream": False})
    prompts = [toy.text_of(request.prompt) for request in scheduler.requests]
    assert ["I look." in prompt for prompt in prompts] == [bool(preserve)] * 4


def test_what_was_left_out_or_moved_is_in_the_report_of_every_dialect(toy: ServedModel) -> None:
    asking = client_for(toy)
    schema = {"name": "look", "input_schema": SCHEMA}
    calls = [{"type": "tool_use", "id": name, "name": "look", "input": {}} for name in "ab"]
    results = [{"type": "tool_result", "tool_use_id": name, "content": name} for name in "ba"]
    billing = "x-anthropic-billing-header: cc_version=2.1; cch=36ee5;\nBe kind."
    talk = [USER, {"role": "assistant", "content": calls}, {"role": "user", "content": results}]
    body: dict[str, Any] = {"max_tokens": 1, "system": billing, "messages": talk, "tools": [schema]}
    body["headstart"] = {"report": True}
    told = asking.post("/v1/messages", json=body).json()["headstart"]
    assert [note.split(":")[0] for note in told["report"]["notes"]] == ["system", "tool results"]
    assert told["warnings"][-2:] == told["report"]["notes"]

    two = [{"name": name, "parameters": SCHEMA} for name in ("look", "find")]
    functions = [{"type": "function", "function": one} for one in two]
    asking.post(CHAT, json={"messages": [USER], "tools": functions, "max_tokens": 1})
    (note,) = report(asking, [USER], tools=functions[::-1])["notes"]
    assert note.startswith("tools: rendered in the order")

    items = [USER]
    items += [{"type": "function_call", "call_id": n, "name": "look", "arguments": "{}"} for n in "ab"]
    items += [{"type": "function_call_output", "call_id": n, "output": n} for n in "ba"]
    asked = {"input": items, "max_output_tokens": 1, "headstart": {"report": True}}
    assert asking.post("/v1/responses", json=asked).json()["headstart"]["report"]["notes"] == [REORDERED]

    made = {"role": "assistant", "tool_calls": [{"function": {"name": n}} for n in ("look", "find")]}
    came = [{"role": "tool", "tool_name": n, "content": n} for n in ("find", "look")]
    asked = {"messages": [USER, made, *came], "stream": False, "headstart": {"report": True}}
    asked["options"] = {"num_predict": 1}
    assert asking.post("/api/chat", json=asked).json()["headstart"]["report"]["notes"] == [REORDERED]
