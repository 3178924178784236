"""Replies that are given go through the real engine, and history knows them."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from scripted_server import Rule, reply_to

RULES = [Rule("name it", "It is Aurora."), Rule("It is Aurora.", "Aurora again."), Rule("it", "what?")]
SCRIPT = Path(__file__).parents[2] / "bench" / "scripted_server.py"


@pytest.mark.parametrize(
    ("prompt", "said"),
    [
        ("please name it now", "It is Aurora."),
        ("name it ... It is Aurora. ... more", "Aurora again."),
        ("It is Aurora. Now name it", "It is Aurora."),
        ("nothing of that", None),
    ],
)
def test_what_occurs_last_decides(prompt: str, said: str | None) -> None:
    assert reply_to(prompt, RULES) == said


@pytest.fixture
def url(tmp_path: Path) -> Iterator[str]:
    rules, log = tmp_path / "rules.json", tmp_path / "log"
    given = [{"when": rule.when, "say": rule.say} for rule in RULES]
    rules.write_text(json.dumps(given))
    with log.open("wb") as stream:
        flags = ["--engine", "toy", "--port", "0", "--base-path", str(tmp_path / "base")]
        process = subprocess.Popen([sys.executable, str(SCRIPT), str(rules), *flags], stderr=stream)
    try:
        deadline = time.monotonic() + 30
        while not (ready := re.search(r"ready +(http://\S+)", log.read_text())):
            assert process.poll() is None and time.monotonic() < deadline, log.read_text()
            time.sleep(0.05)
        yield ready[1]
    finally:
        process.kill()
        process.wait()


def test_given_replies_are_state_like_any_other(url: str) -> None:
    messages = [{"role": "user", "content": "Here is a ship, name it."}]
    said, usages = [], []
    for _ in range(2):
        reply = httpx.post(f"{url}/chat/completions", json={"messages": messages}).json()
        message = reply["choices"][0]["message"]
        assert reply["choices"][0]["finish_reason"] == "stop"
        said.append(message["content"])
        usages.append(reply["usage"])
        messages += [message, {"role": "user", "content": "And then?"}]
    assert said == ["It is Aurora.", "Aurora again."]
    before, after = usages
    assert after["prompt_tokens_details"]["cached_tokens"] >= before["total_tokens"] - 1
