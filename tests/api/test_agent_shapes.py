"""What coding agents send that no API reference would lead one to expect: the prompt stays the same."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from fastapi.testclient import TestClient

from headstart.chat.template import ChatTemplate
from headstart.serving.models import ServedModel
from tests.api.served import Scripted, client_for, served_toy
from tests.api.test_calls import SCHEMA, TEMPLATE
from tests.api.test_openai_stream import said


@pytest.fixture(scope="module")
def toy() -> Iterator[ServedModel]:
    with served_toy() as model:
        yield replace(model, template=ChatTemplate(TEMPLATE, bos="", eos=""))


class Agent:
    """Sends bodies, and has the prompts that they became."""

    def __init__(self, toy: ServedModel) -> None:
        self._scheduler = Scripted(lambda request: said("Yes."))
        self._client: TestClient = client_for(replace(toy, scheduler=self._scheduler))
        self._text_of = toy.text_of

    def prompt(self, path: str, body: dict[str, Any]) -> str:
        answer = self._client.post(path, json=body)
        assert answer.status_code == 200, answer.text
        return self._text_of(self._scheduler.requests[-1].prompt)


@pytest.fixture
def agent(toy: ServedModel) -> Agent:
    return Agent(toy)


def test_claude_code(agent: Agent) -> None:
    call = {"type": "tool_use", "id": "toolu_1", "name": "Read", "input": {"file_path": "a.py"}}
    result = {"type": "tool_result", "tool_use_id": "toolu_1", "content": "1\tx"}
    first = {
        "model": "claude-x",
        "max_tokens": 32000,
        "stream": False,
        "metadata": {"user_id": "user_1"},
        "thinking": {"type": "adaptive"},
        "context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
        "output_config": {"effort": "high"},
        "system": [
            {"type": "text", "text": "x-anthropic-billing-header: cc_version=2.1.332.01c; cch=36ee5;"},
            {"type": "text", "text": "You are an agent.", "cache_control": {"type": "ephemeral"}},
        ],
        "tools": [
            {"name": "Read", "description": "reads", "input_schema": SCHEMA},
            {"name": "Later", "description": "x", "input_schema": SCHEMA, "defer_loading": True},
        ],
        "messages": [
            {
                "role": "user",
                "content": [{"type": "text", "text": "Fix it."}],
                "output_config": {"effort": "low"},
            },
            {"role": "system", "content": "1,000 tokens left."},
            {
                "role": "assistant",
                "content": [{"type": "thinking", "thinking": "Hm.", "signature": "any"}, call],
            },
            {"role": "user", "content": [result]},
        ],
    }
    prompt = agent.prompt("/v1/messages", first)
    assert "billing" not in prompt and "cch=" not in prompt
    assert prompt.index("Fix it.") < prompt.index("1,000 tokens left.") < prompt.index('file_path": "a.py')
    again = copy.deepcopy(first)
    again["system"][0]["text"] = "x-anthropic-billing-header: cc_version=2.1.332.01c; cch=0f0f0;"
    again["system"][1].pop("cache_control")
    again["messages"][0]["content"] = "Fix it."
    again["tools"].reverse()
    again["messages"][3]["content"][0]["cache_control"] = {"type": "ephemeral"}
    assert agent.prompt("/v1/messages", again) == prompt


def test_codex(agent: Agent) -> None:
    tool = {"type": "function", "name": "shell", "description": "runs", "strict": False, "parameters": SCHEMA}
    body = {
        "model": "m",
        "stream": False,
        "store": False,
        "include": ["reasoning.encrypted_content"],
        "parallel_tool_calls": False,
        "tool_choice": "auto",
        "prompt_cache_key": "k",
        "reasoning": {"summary": "auto"},
        "client_metadata": {"a": "b"},
        "tools": [{"type": "namespace", "name": "n", "tools": [tool]}, {"type": "web_search"}],
        "input": [
            {"type": "message", "role": "developer", "id": "msg_1", "content": [text("You are an agent.")]},
            {"type": "message", "role": "user", "id": "msg_2", "content": [text("Fix it.")]},
            {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "zzz", "content": None},
            {
                "type": "function_call",
                "id": "fc_1",
                "call_id": "c1",
                "name": "shell",
                "arguments": '{"path":"a"}',
            },
            {"type": "function_call_output", "id": "fo_1", "call_id": "c1", "output": "done"},
        ],
    }
    prompt = agent.prompt("/v1/responses", body)
    assert prompt.index("You are an agent.") < prompt.index("Fix it.") < prompt.rindex('shell"')
    assert not any(name in prompt for name in ("msg_1", "fc_1", "fo_1", "rs_1", "zzz"))
    again = copy.deepcopy(body)
    for item in again["input"]:
        item["id"] = f"other_{item['id']}"  # type: ignore[index]
    assert agent.prompt("/v1/responses", again) == prompt


def text(words: str) -> dict[str, str]:
    return {"type": "input_text", "text": words}


def said_text(words: str) -> dict[str, str]:
    return {"type": "text", "text": words}


def test_agents_on_chat_completions(agent: Agent) -> None:
    """Results in blocks, null or empty content beside calls, ids that lose a letter, reasoning sent back."""
    function = {"name": "read", "arguments": '{"path":"a"}'}
    call = {"id": "call_1x0", "type": "function", "function": function}
    body = {
        "tools": [{"type": "function", "function": {"name": "read", "parameters": SCHEMA}}],
        "messages": [
            {"role": "developer", "content": "You are an agent."},
            {"role": "user", "content": [{"type": "text", "text": "Fix it."}]},
            {"role": "assistant", "content": None, "reasoning_content": "Hm.", "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "call_1x0", "content": [{"type": "text", "text": "1\tx"}]},
        ],
    }
    prompt = agent.prompt("/v1/chat/completions", body)
    again: dict[str, Any] = copy.deepcopy(body)
    again["messages"][1]["content"] = "Fix it."
    again["messages"][2]["content"] = ""
    again["messages"][2]["tool_calls"][0]["id"] = again["messages"][3]["tool_call_id"] = "call1x0"
    again["messages"][3]["content"] = "1\tx"
    assert agent.prompt("/v1/chat/completions", again) == prompt


def test_openclaw_on_ollama(agent: Agent) -> None:
    call = {"id": "ollama_call_1", "function": {"name": "read", "arguments": {"path": "a"}}}
    body = {
        "model": "m",
        "stream": False,
        "think": False,
        "truncate": False,
        "shift": False,
        "options": {"num_ctx": 65536, "num_predict": 16},
        "tools": [{"type": "function", "function": {"name": "read", "parameters": SCHEMA}}],
        "messages": [
            {"role": "system", "content": "You are an agent."},
            {"role": "user", "content": "Fix it."},
            {"role": "assistant", "content": "", "tool_calls": [call]},
            {"role": "tool", "content": "1\tx", "tool_name": "read"},
        ],
    }
    prompt = agent.prompt("/api/chat", body)
    assert prompt.endswith("<think>\n\n</think>\n\n")
    again: dict[str, Any] = copy.deepcopy(body)
    again["messages"][2]["tool_calls"][0]["id"] = "ollama_call_2"
    assert agent.prompt("/api/chat", again) == prompt
