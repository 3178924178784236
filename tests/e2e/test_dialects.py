"""Ten turns in each dialect with a real model: every turn reads what is new, and nothing else."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import anthropic
import httpx
import openai
import pytest

from tests.e2e.test_serve import Served, serving

SYSTEM = "You keep the log of a lighthouse. Answer in a few words. " * 6
TURNS = 10
EMBEDDED = ("--engine", "llamacpp", "--model", "embedded", "--ctx-size", "4096", "--threads", "1")
Turn = Callable[[str, list[Any]], tuple[str, int, int]]


@pytest.fixture(scope="module")
def server(smollm2: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    log = tmp_path_factory.mktemp("serve") / "log"
    with serving(
        log, "--engine", "llamacpp", "--model", "embedded", "--ctx-size", "4096", "--threads", "1"
    ) as one:
        yield one


def by_openai(url: str, said: list[Any]) -> tuple[str, int, int]:
    client = openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0)
    messages = [{"role": "system", "content": f"OpenAI. {SYSTEM}"}, *said]
    reply = client.chat.completions.create(model="m", messages=messages, max_tokens=8, temperature=0)
    assert reply.usage and reply.usage.prompt_tokens_details
    cached = reply.usage.prompt_tokens_details.cached_tokens or 0
    return reply.choices[0].message.content or "", reply.usage.prompt_tokens, cached


def by_responses(url: str, said: list[Any]) -> tuple[str, int, int]:
    client = openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0)
    reply = client.responses.create(
        model="m", input=said, instructions=f"Responses. {SYSTEM}", max_output_tokens=16, temperature=0
    )
    assert reply.usage
    return reply.output_text, reply.usage.input_tokens, reply.usage.input_tokens_details.cached_tokens


def by_anthropic(url: str, said: list[Any]) -> tuple[str, int, int]:
    client = anthropic.Anthropic(base_url=url, api_key="none", max_retries=0)
    asked: dict[str, Any] = {
        "model": "m",
        "max_tokens": 8,
        "system": f"Anthropic. {SYSTEM}",
        "messages": said,
    }
    with client.messages.stream(**asked, extra_body={"temperature": 0}) as stream:
        usage, text = stream.get_final_message().usage, stream.get_final_text()
    cached = usage.cache_read_input_tokens or 0
    return text, usage.input_tokens + (usage.cache_creation_input_tokens or 0) + cached, cached


def by_ollama(url: str, said: list[Any]) -> tuple[str, int, int]:
    messages = [{"role": "system", "content": f"Ollama. {SYSTEM}"}, *said]
    options = {"temperature": 0, "num_predict": 8}
    body = {"model": "m", "messages": messages, "options": options, "stream": False}
    reply = httpx.post(f"{url}/api/chat", json=body, timeout=60).json()
    return reply["message"]["content"], reply["prompt_eval_count"], reply["prompt_eval_cached_count"]


@pytest.mark.parametrize("ask", [by_openai, by_responses, by_anthropic, by_ollama])
def test_ten_turns_read_only_what_is_new(server: Served, ask: Turn) -> None:
    said: list[Any] = []
    before = 0
    for turn in range(TURNS):
        said.append({"role": "user", "content": f"Ship {turn} passed. What do you write?"})
        text, prompt, cached = ask(server.url, said)
        assert cached >= before - 1, f"turn {turn} read {prompt - cached} of {prompt}, {before} were there"
        said.append({"role": "assistant", "content": text})
        before = prompt


@pytest.mark.parametrize(("history", "kept"), [("faithful", True), ("literal", False)])
def test_replies_are_not_read_again_however_their_text_would_encode(
    smollm2: Path, tmp_path: Path, history: str, kept: bool
) -> None:
    """The model is made to write letter by letter what its tokenizer would write in larger pieces."""
    with serving(tmp_path / "log", *EMBEDDED, "--history", history) as one:
        client = openai.OpenAI(base_url=f"{one.url}/v1", api_key="none", max_retries=0)
        (letter,) = httpx.post(f"{one.url}/tokenize", json={"content": "a"}).json()["tokens"]
        said: list[Any] = [{"role": "system", "content": SYSTEM}]
        there = 0
        for turn in range(4):
            said.append({"role": "user", "content": f"Ship {turn} passed. What do you write?"})
            reply = client.chat.completions.create(
                model="m", messages=said, max_tokens=24, temperature=0, logit_bias={str(letter): 100}
            )
            assert reply.usage and reply.usage.prompt_tokens_details
            cached = reply.usage.prompt_tokens_details.cached_tokens or 0
            assert not turn or (cached >= there - 1) is kept, f"turn {turn}: {cached} of {there}"
            text = reply.choices[0].message.content or ""
            assert text == "a" * 24
            said.append({"role": "assistant", "content": f" {text}\n"})
            there = reply.usage.prompt_tokens + reply.usage.completion_tokens


def test_a_real_model_calls_the_tool_it_must(smollm2: Path, tmp_path: Path) -> None:
    """SmolLM2 would not of itself: decoding holds it to a call in the form that was chosen."""
    schema = {"type": "object", "properties": {"flag": {"enum": ["red", "white"]}}, "required": ["flag"]}
    schema["additionalProperties"] = False
    tools: Any = [{"type": "function", "function": {"name": "log_ship", "parameters": schema}}]
    with serving(tmp_path / "log", *EMBEDDED, "--tool-parser", "hermes") as server:
        client = openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0)
        reply = client.chat.completions.create(
            model="m",
            messages=[{"role": "user", "content": "A ship with a red flag passed."}],
            tools=tools,
            tool_choice={"type": "function", "function": {"name": "log_ship"}},
            max_tokens=80,
            temperature=0,
        )
    (call,) = reply.choices[0].message.tool_calls or []
    assert call.type == "function"
    assert json.loads(call.function.arguments)["flag"] in ("red", "white")
