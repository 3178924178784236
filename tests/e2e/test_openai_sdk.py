"""OpenAI's own SDK against `headstart serve` with SmolLM2: every field it reads, and its errors."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

STORY = "The lighthouse keeper counted the ships that passed in the night and wrote each name down. " * 12


@pytest.fixture(scope="module")
def url(smollm2: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    log = tmp_path_factory.mktemp("serve") / "log"
    arguments = ["--model", str(smollm2), "--port", "0", "--ctx-size", "2048", "--ram-cache", "512MB"]
    arguments += ["--base-path", str(log.parent / "base")]
    with log.open("wb") as stream:
        process = subprocess.Popen(
            [sys.executable, "-m", "headstart", "serve", *arguments], stderr=stream, env=os.environ.copy()
        )
    try:
        deadline_s = time.monotonic() + 120
        while not (ready := re.search(r"ready +(http://\S+)/v1", log.read_text())):
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < deadline_s, log.read_text()
            time.sleep(0.1)
        yield ready.group(1)
    finally:
        process.kill()
        process.wait()


@pytest.fixture(scope="module")
def client(url: str) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{url}/v1", api_key="none needed", max_retries=0, timeout=120)


@pytest.fixture(scope="module")
def model(client: openai.OpenAI) -> str:
    [served] = client.models.list().data
    return served.id


def user(text: str) -> list[Any]:
    return [{"role": "user", "content": text}]


def cached(usage: Any) -> int:
    return int(usage.prompt_tokens_details.cached_tokens)


def test_chat(client: openai.OpenAI, model: str) -> None:
    reply = client.chat.completions.create(
        model=model, messages=user("Say hello."), temperature=0, max_tokens=16
    )
    assert reply.choices[0].message.role == "assistant"
    assert reply.choices[0].message.content
    assert reply.choices[0].finish_reason in ("stop", "length")
    assert reply.usage is not None
    assert reply.usage.total_tokens == reply.usage.prompt_tokens + reply.usage.completion_tokens


def test_cached_tokens_grow_with_the_conversation(client: openai.OpenAI, model: str) -> None:
    """Each turn reads only what is new: everything but the last turn's end comes from the cache."""
    messages: list[Any] = [{"role": "system", "content": "You retell stories in one sentence. " + STORY}]
    before = 0
    for turn in range(3):
        messages.append({"role": "user", "content": f"Question {turn}: what did the keeper write down?"})
        reply = client.chat.completions.create(model=model, messages=messages, temperature=0, max_tokens=12)
        assert reply.usage is not None
        if turn:
            assert cached(reply.usage) >= before - 1
        before = reply.usage.prompt_tokens
        messages.append({"role": "assistant", "content": reply.choices[0].message.content})
    edited = [messages[0], {"role": "user", "content": "Question 0: what did the keeper forget?"}]
    usage = client.chat.completions.create(model=model, messages=edited, max_tokens=1).usage
    assert usage is not None
    assert usage.prompt_tokens - 25 < cached(usage) < usage.prompt_tokens - 2


def test_exact_repeat_reads_nothing_and_says_the_same(client: openai.OpenAI, model: str) -> None:
    ask: dict[str, Any] = {"model": model, "messages": user("Name three colours."), "temperature": 0}
    first, second = (client.chat.completions.create(**ask, max_tokens=20) for _ in range(2))
    assert second.usage is not None
    assert cached(second.usage) >= second.usage.prompt_tokens - 1
    assert first.choices[0].message.content == second.choices[0].message.content


def test_streaming_with_usage(client: openai.OpenAI, model: str) -> None:
    ask: dict[str, Any] = {
        "model": model,
        "messages": user("Count to ten."),
        "temperature": 0,
        "max_tokens": 24,
    }
    whole = client.chat.completions.create(**ask)
    chunks = list(client.chat.completions.create(**ask, stream=True, stream_options={"include_usage": True}))
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert text == whole.choices[0].message.content
    assert chunks[0].choices[0].delta.role == "assistant"
    assert chunks[0].choices[0].delta.content
    assert all(chunk.usage is None for chunk in chunks[:-1])
    usage = chunks[-1].usage
    assert usage is not None
    assert whole.usage is not None
    assert usage.prompt_tokens == whole.usage.prompt_tokens
    assert usage.completion_tokens == whole.usage.completion_tokens
    extra = usage.model_dump()
    assert 0 < extra["time_to_first_token"] <= extra["total_time"]
    assert chunks[-1].model_dump()["timings"]["cache_n"] == cached(usage)


def test_json_schema(client: openai.OpenAI, model: str) -> None:
    schema = {
        "type": "object",
        "properties": {"city": {"type": "string", "maxLength": 20}, "warm": {"type": "boolean"}},
        "required": ["city", "warm"],
        "additionalProperties": False,
    }
    reply = client.chat.completions.create(
        model=model,
        messages=user("Describe the weather in Paris as JSON."),
        response_format={
            "type": "json_schema",
            "json_schema": {"name": "weather", "schema": schema, "strict": True},
        },
        max_tokens=120,
        temperature=0.7,
        seed=1,
    )
    parsed = json.loads(reply.choices[0].message.content or "")
    assert set(parsed) == {"city", "warm"}
    assert reply.choices[0].finish_reason == "stop"


def test_logprobs(client: openai.OpenAI, model: str) -> None:
    reply = client.chat.completions.create(
        model=model, messages=user("Say yes."), logprobs=True, top_logprobs=3, max_tokens=6, temperature=0
    )
    logprobs = reply.choices[0].logprobs
    assert logprobs is not None
    assert logprobs.content
    for entry in logprobs.content:
        assert len(entry.top_logprobs) == 3
        assert entry.top_logprobs[0].token == entry.token
        assert entry.top_logprobs[0].logprob >= entry.top_logprobs[1].logprob


def test_two_replies(client: openai.OpenAI, model: str) -> None:
    ask: dict[str, Any] = {"model": model, "messages": user("Tell me anything."), "n": 2, "seed": 7}
    reply = client.chat.completions.create(**ask, max_tokens=12)
    texts = [choice.message.content for choice in reply.choices]
    assert [choice.index for choice in reply.choices] == [0, 1]
    assert texts[0] != texts[1]
    assert reply.usage is not None
    assert reply.usage.completion_tokens <= 24


def test_completions_of_text_and_token_ids(client: openai.OpenAI, model: str, url: str) -> None:
    text = "Once upon a time there was"
    tokens = httpx.post(f"{url}/tokenize", json={"content": text}).json()["tokens"]
    by_text = client.completions.create(model=model, prompt=text, max_tokens=8, temperature=0)
    by_ids = client.completions.create(model=model, prompt=tokens, max_tokens=8, temperature=0)
    assert by_text.choices[0].text == by_ids.choices[0].text
    assert by_text.usage is not None
    assert by_text.usage.prompt_tokens == len(tokens)
    assert httpx.post(f"{url}/detokenize", json={"tokens": tokens}).json()["content"] == text


def test_characters_of_several_tokens_arrive_whole(client: openai.OpenAI, model: str, url: str) -> None:
    """A grammar forces characters that SmolLM2 has to spell in several byte tokens."""
    wanted = "grüße 你好 🙂🦊"
    ask: dict[str, Any] = {
        "model": model,
        "messages": user("x"),
        "max_tokens": 60,
        "temperature": 0,
        "extra_body": {"response_format": {"type": "grammar", "grammar": f'start: "{wanted}"'}},
    }
    chunks = list(client.chat.completions.create(**ask, stream=True))
    texts = [chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices]
    assert "".join(texts) == wanted
    assert not any("\ufffd" in text for text in texts)


def test_errors_are_the_sdks_own(client: openai.OpenAI, model: str) -> None:
    with pytest.raises(openai.BadRequestError) as too_long:
        client.chat.completions.create(model=model, messages=user(STORY * 20))
    assert too_long.value.code == "context_length_exceeded"
    assert "2048" in str(too_long.value)
    with pytest.raises(openai.BadRequestError) as wrong:
        client.chat.completions.create(model=model, messages=user("x"), extra_body={"temperature": "hot"})
    assert wrong.value.param == "temperature"
    with pytest.raises(openai.BadRequestError, match="cannot be compiled"):
        client.chat.completions.create(
            model=model,
            messages=user("x"),
            response_format={"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "odd"}}},
        )
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("no such model")


def test_server_answers_after_clients_that_left(client: openai.OpenAI, model: str) -> None:
    impatient = client.with_options(timeout=0.2)
    with pytest.raises(openai.APITimeoutError):
        impatient.chat.completions.create(model=model, messages=user("Long. " * 900), max_tokens=1)
    with client.chat.completions.create(
        model=model, messages=user("Write a long story."), stream=True, max_tokens=1500
    ) as stream:
        next(iter(stream))
    started_s = time.perf_counter()
    reply = client.chat.completions.create(model=model, messages=user("Hi"), max_tokens=4)
    assert reply.choices
    assert time.perf_counter() - started_s < 20
