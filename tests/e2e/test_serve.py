"""`headstart serve` as a program: it starts, says so, keeps keys to itself, and stops in order."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from tests.fixtures.gguf_models import build_lora

KEY = "sesame-open-47"


@dataclass
class Served:
    """A running server. `log` holds its stderr."""

    process: subprocess.Popen[bytes]
    url: str
    log: Path

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        return self.process.wait(timeout=30)


@contextmanager
def serving(log: Path, *arguments: str, **environment: str) -> Iterator[Served]:
    """`headstart serve --engine toy` on a free port, ready to answer."""
    base = ["--base-path", str(log.parent / "base")]
    with log.open("wb") as stream:
        process = subprocess.Popen(
            [sys.executable, "-m", "headstart", "serve", "--engine", "toy", "--port", "0", *base, *arguments],
            stderr=stream,
            env={**os.environ, **environment},
        )
    try:
        deadline = time.monotonic() + 30
        while not (ready := re.search(r"ready +(http://\S+)/v1", log.read_text())):
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.05)
        yield Served(process, ready.group(1), log)
    finally:
        process.kill()
        process.wait()


def test_it_says_what_it_serves_and_answers(tmp_path: Path) -> None:
    with serving(tmp_path / "log", "--ram-cache", "64MB", "--model-name", "mine") as server:
        assert httpx.get(f"{server.url}/health").json()["model"] == "mine"
        log = server.log.read_text()
        assert "model   mine (toy" in log
        assert "cache   64.0 MB of memory" in log
        assert f"ssd     {tmp_path}/base/ssd: 0 entries, 0 B of" in log
        assert "probe   rows cut and put back" in log
        assert "\x1b[" not in log


def test_it_says_which_adapters_it_applies(tiny_llama: Path, tmp_path: Path) -> None:
    style, facts = build_lora(tmp_path / "style.gguf"), build_lora(tmp_path / "facts.gguf", seed=5)
    flags = ("--engine", "llamacpp", "--model", str(tiny_llama), "--ctx-size", "512", "--threads", "1")
    with serving(tmp_path / "log", *flags, HEADSTART_LORA=f"{style},{facts}=0.5") as server:
        [model] = httpx.get(f"{server.url}/v1/models").json()["data"]
        stated = [(one["name"], one["scale"]) for one in model["headstart"]["adapters"]]
        assert stated == [("style.gguf", 1.0), ("facts.gguf", 0.5)]
        assert "lora    style.gguf (scale 1), facts.gguf (scale 0.5)\n" in server.log.read_text()


@pytest.mark.parametrize("level", ["debug", "info"])
def test_keys_and_prompts_are_in_no_log(tmp_path: Path, level: str) -> None:
    with serving(tmp_path / "log", "--log-level", level, HEADSTART_API_KEY=KEY) as server:
        secret = "the owl flies at nine"
        for headers in ({"x-api-key": KEY}, {"authorization": f"Bearer {KEY}"}, {"x-api-key": f"{KEY}-not"}):
            for max_tokens in (3, "x"):
                body = {"prompt": secret, "max_tokens": max_tokens}
                httpx.post(f"{server.url}/v1/completions", headers=headers, json=body)
            httpx.post(f"{server.url}/v1/completions", headers=headers, content=b"{owl")
            httpx.get(f"{server.url}/nope", headers=headers)
        assert server.stop() == 0
        log = server.log.read_text()
        assert "ready" in log
        assert "sesame" not in log
        assert "owl" not in log


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_lets_running_replies_end(tmp_path: Path, number: signal.Signals) -> None:
    body = {"prompt": "once upon a time", "max_tokens": 300, "stream": True, "ignore_eos": True}
    with (
        serving(tmp_path / "log") as server,
        httpx.stream("POST", f"{server.url}/v1/completions", json=body, timeout=30) as reply,
    ):
        lines = reply.iter_lines()
        next(lines)
        server.process.send_signal(number)
        assert list(lines)[-2:] == ["data: [DONE]", ""]
        assert server.process.wait(timeout=30) == 0
        assert server.log.read_text().endswith("stopped\n")


def test_a_taken_port_is_one_line_and_status_2(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        flags = ("--engine", "toy", "--port", str(port), "--base-path", str(tmp_path))
        done = subprocess.run(
            [sys.executable, "-m", "headstart", "serve", *flags],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    assert done.returncode == 2
    assert done.stderr.startswith(f"headstart: --port {port}: another program listens")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "status", "part"),
    [
        (["--model", "/nowhere/m.gguf"], 1, "there is no model at /nowhere/m.gguf"),
        (["--lora", "/nowhere/a.gguf"], 1, "there is no LoRA adapter at /nowhere/a.gguf"),
        (["--lora", "a=b.gguf"], 2, "--lora 'a=b.gguf': expected a scale"),
        (["--engine", "toy", "--lora", "a.gguf"], 2, "--lora needs --engine llamacpp"),
        (["--engine", "toy", "--chat-template", "/nowhere.jinja"], 2, "--chat-template /nowhere.jinja"),
        (["--engine", "toy", "--chat-template", "{{ unclosed"], 2, "--chat-template: "),
        (["--engine", "toy", "--reproducible", "--batching", "shared"], 2, "needs --batching exact"),
        (
            ["--model", "hf:owner/repository/model.gguf"],
            1,
            "model.gguf cannot be fetched",
        ),
    ],
)
def test_what_cannot_start_says_why(arguments: list[str], status: int, part: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "headstart", "serve", "--port", "0", "--base-path", str(tmp_path), *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, "HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path)},
    )
    last = done.stderr.splitlines()[-1]
    assert done.returncode == status
    assert last.startswith("headstart: ")
    assert part in last
    assert "Traceback" not in done.stderr


def test_a_foreign_page_and_a_rebound_name_are_refused(tmp_path: Path) -> None:
    with serving(tmp_path / "log") as server:
        for headers in ({"Host": "evil.example"}, {"Origin": "http://evil.example"}):
            assert httpx.get(f"{server.url}/v1/models", headers=headers).status_code == 403
