"""Replies that are given go through the real engine; state, history and reports know them as its own."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi.testclient import TestClient

from headstart.cli.server import assemble
from headstart.config import Settings
from headstart.engines.toy import ToyEngine
from headstart.engines.toy_vocabulary import BOS, IM_END
from headstart.errors import ConfigError
from headstart.lab.scripted import Rule, end_of_turn, main, read_rules, reply_to, scripted

RULES = [Rule("name it", "It is Aurora."), Rule("It is Aurora.", "Aurora again."), Rule("it", "what?")]
CALL = '{"name": "look", "arguments": {"deep": true, "at": "a\\u0062c"}}'
TOOL = {"type": "object", "properties": {"at": {"type": "string"}, "deep": {"type": "boolean"}}}


@pytest.mark.parametrize(
    ("prompt", "said"),
    [
        ("please name it now", "It is Aurora."),
        ("name it ... It is Aurora. ... more", "Aurora again."),
        ("It is Aurora. Now name it", "It is Aurora."),
        ("nothing of that", None),
    ],
)
def test_what_ends_last_decides(prompt: str, said: str | None) -> None:
    assert reply_to(prompt, RULES) == said


@pytest.mark.parametrize("text", ["{", "{}", '[{"when": "a"}]', '[{"when": "", "say": "b"}]', "[1]"])
def test_rules_that_are_none_are_refused(tmp_path: Path, text: str) -> None:
    rules = tmp_path / "rules.json"
    rules.write_text(text)
    with pytest.raises(ConfigError, match=r"--rules .*rules\.json"):
        read_rules(rules)
    assert main(["--rules", str(rules), "--engine", "toy"]) == 2


def test_a_turn_ends_as_the_template_ends_it() -> None:
    engine = ToyEngine()
    assert end_of_turn(engine) == IM_END
    engine.facts = replace(engine.facts, chat_template="{{ messages }}<|endoftext|>")
    assert end_of_turn(engine) == BOS
    engine.facts = replace(engine.facts, chat_template=None)
    assert end_of_turn(engine) == engine.vocabulary.eos


@contextmanager
def answering(rules: list[Rule], **changes: Any) -> Iterator[TestClient]:
    """The toy model with given replies, in this process."""
    settings = Settings(engine="toy", ssd_cache_bytes=0, tool_parser="hermes", **changes)
    scheduler, app = assemble(settings, ToyEngine(), 0.0, scheduling=scripted(rules))
    scheduler.start()
    try:
        yield TestClient(app, base_url="http://127.0.0.1")
    finally:
        scheduler.stop()


def said_and_cached(client: TestClient, path: str, body: dict[str, Any]) -> tuple[str, int]:
    """The text of a reply and the tokens that were not read for it."""
    reply = client.post(path, json=body)
    assert reply.status_code == 200, reply.text
    told = reply.json()
    if "choices" in told:
        cached = told["usage"]["prompt_tokens_details"]["cached_tokens"]
        return told["choices"][0]["message"]["content"], cached
    if "content" in told:
        return told["content"][0]["text"], told["usage"]["cache_read_input_tokens"]
    if "output" in told:
        return told["output"][0]["content"][0]["text"], told["usage"]["input_tokens_details"]["cached_tokens"]
    return told["message"]["content"], told["prompt_eval_cached_count"]


@pytest.mark.parametrize(
    ("path", "more"),
    [
        ("/v1/chat/completions", {}),
        ("/v1/responses", {}),
        ("/v1/messages", {"max_tokens": 100}),
        ("/api/chat", {"stream": False}),
    ],
)
def test_every_dialect_gets_the_given_reply_and_its_state(path: str, more: dict[str, Any]) -> None:
    turns: list[dict[str, str]] = [{"role": "user", "content": "Here is a ship, name it."}]
    with answering(RULES) as client:
        asked = {"model": "toy", ("input" if "responses" in path else "messages"): turns, **more}
        first, _ = said_and_cached(client, path, asked)
        turns += [{"role": "assistant", "content": first}, {"role": "user", "content": "And then?"}]
        second, cached = said_and_cached(client, path, asked)
    assert (first, second) == ("It is Aurora.", "Aurora again.")
    assert cached >= len("<|im_start|>user\nHere is a ship, name it.") + len(first)


def test_calls_are_written_as_the_model_would_and_parsed_as_its_own() -> None:
    tools = [{"type": "function", "function": {"name": "look", "parameters": TOOL}}]
    asked: dict[str, Any] = {"messages": [{"role": "user", "content": "look deep"}], "tools": tools}
    with answering([Rule("deep", f"Looking.\n<tool_call>\n{CALL}\n</tool_call>")]) as client:
        choice = client.post("/v1/chat/completions", json=asked).json()["choices"][0]
    (call,) = choice["message"]["tool_calls"]
    assert choice["finish_reason"] == "tool_calls"
    assert json.loads(call["function"]["arguments"]) == {"deep": True, "at": "abc"}


def test_any_sampling_and_any_speculation_leaves_the_reply_as_given() -> None:
    said = "abcabcabcabcabcabcabc" * 4
    asked = {"messages": [{"role": "user", "content": "again: abcabcabc"}], "headstart": {"report": True}}
    with answering([Rule("again", said)], speculate="ngram") as client:
        told = client.post("/v1/chat/completions", json={**asked, "temperature": 2.0, "top_k": 1}).json()
    assert told["choices"][0]["message"]["content"] == said
    assert told["timings"]["draft_n_accepted"] > len(said) // 2


def test_a_control_token_of_the_model_s_own_form_is_one_token() -> None:
    asked = {"messages": [{"role": "user", "content": "odd"}]}
    with answering([Rule("odd", "a<|pad|>b")]) as client:
        usage = client.post("/v1/chat/completions", json=asked).json()["usage"]
    assert usage["completion_tokens"] == len(["a", "<|pad|>", "b", "<|im_end|>"])


def test_without_a_rule_the_model_speaks_as_it_would() -> None:
    asked = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 20, "temperature": 0}
    replies = []
    for rules in ([], [Rule("nothing of that", "no")]):
        with answering(rules) as client:
            replies.append(client.post("/v1/chat/completions", json=asked).json()["choices"][0]["message"])
    assert replies[0] == replies[1]


@pytest.fixture
def url(tmp_path: Path) -> Iterator[str]:
    rules, log = tmp_path / "rules.json", tmp_path / "log"
    given = [{"when": rule.when, "say": rule.say} for rule in RULES]
    rules.write_text(json.dumps(given))
    command = [sys.executable, "-m", "headstart.lab.scripted", "--rules", str(rules)]
    command += ["--tokens", str(tmp_path / "tokens")]
    flags = ["--engine", "toy", "--port", "0", "--base-path", str(tmp_path / "base")]
    with log.open("wb") as stream:
        process = subprocess.Popen([*command, *flags], stderr=stream)
    try:
        deadline_s = time.monotonic() + 30
        while not (ready := re.search(r"ready +(http://\S+)", log.read_text())):
            assert process.poll() is None and time.monotonic() < deadline_s, log.read_text()
            time.sleep(0.05)
        yield ready[1]
    finally:
        process.kill()
        process.wait()


def test_the_program_serves_the_given_replies_and_records_their_tokens(url: str, tmp_path: Path) -> None:
    messages = [{"role": "user", "content": "Here is a ship, name it."}]
    reply = httpx.post(f"{url}/chat/completions", json={"messages": messages}).json()
    assert reply["choices"][0]["message"]["content"] == "It is Aurora."
    assert reply["choices"][0]["finish_reason"] == "stop"
    (told,) = map(json.loads, (tmp_path / "tokens").read_text().splitlines())
    assert told["reply"] == [*b"It is Aurora.", IM_END]
    assert len(told["prompt"]) == reply["usage"]["prompt_tokens"]
