"""`headstart serve` stopped, killed and started again over one directory."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.e2e.test_serve import Served, serving

PROMPT = "The lighthouse keeper counted the ships that passed in the night. " * 12


def ask(server: Served, prompt: str = PROMPT) -> tuple[str, dict[str, Any]]:
    """The reply's text and its cache report."""
    body = {"prompt": prompt, "max_tokens": 8, "temperature": 0, "headstart": {"report": True}}
    reply = httpx.post(f"{server.url}/v1/completions", json=body, timeout=30).json()
    return reply["choices"][0]["text"], reply["headstart"]["report"]


def entries(server: Served) -> int:
    """How many entries the server says it found on disk."""
    line = next(line for line in server.log.read_text().splitlines() if line.startswith("ssd "))
    return int(line.split(": ")[1].split(" entries")[0].replace(",", ""))


def metric(server: Served, name: str) -> float:
    lines = httpx.get(f"{server.url}/metrics").text.splitlines()
    return float(next(line for line in lines if line.startswith(f"{name} ")).split()[1])


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_same_question_after_a_restart_reads_nothing(tmp_path: Path, number: signal.Signals) -> None:
    with serving(tmp_path / "log") as server:
        text, report = ask(server)
        assert report["restored"] == 0
        assert server.stop(number) == 0
        end = server.log.read_text().splitlines()[-2:]
        assert "written at the end" in end[0]
        assert end[0].endswith("all of the cache is on disk")
        assert end[1] == "stopped"
    with serving(tmp_path / "log") as server:
        assert entries(server) > 0
        again, report = ask(server)
        assert again == text
        assert (report["tier"], report["restored"]) == ("ssd", report["prompt_tokens"])
        assert metric(server, "headstart_ssd_read_bytes_total") > 0


def test_a_killed_server_loses_the_open_block_at_most(tmp_path: Path) -> None:
    flags = ("--block-size", "16", "--flush-interval", "0.1")
    with serving(tmp_path / "log", *flags) as server:
        text, _ = ask(server)
        time.sleep(1)
        server.process.kill()
        server.process.wait()
    with serving(tmp_path / "log", *flags) as server:
        again, report = ask(server)
        assert again == text
        assert report["tier"] == "ssd"
        assert report["restored"] >= report["prompt_tokens"] - 17


def test_one_server_owns_a_store_and_another_may_read_it(tmp_path: Path) -> None:
    with serving(tmp_path / "log") as server:
        ask(server)
        assert server.stop() == 0
    with serving(tmp_path / "log") as owner:
        toy = ("--engine", "toy", "--port", "0", "--base-path", str(tmp_path / "base"))
        second = subprocess.run(
            [sys.executable, "-m", "headstart", "serve", *toy],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert second.returncode == 2
        assert second.stderr.count("\n") == 1
        assert f"is in use by process {owner.process.pid}" in second.stderr
        assert "--cache-read-only" in second.stderr
        files = sorted((tmp_path / "base" / "ssd").rglob("*.safetensors"))
        read = ("--base-path", str(tmp_path / "base"), "--cache-read-only")
        (tmp_path / "reader").mkdir()
        with serving(tmp_path / "reader" / "log", *read) as reader:
            assert "read only" in reader.log.read_text()
            _, report = ask(reader)
            assert report["tier"] == "ssd"
            ask(reader, PROMPT.replace("ships", "boats"))
            assert reader.stop() == 0
        assert sorted((tmp_path / "base" / "ssd").rglob("*.safetensors")) == files


def test_a_second_interrupt_leaves_at_once_and_the_store_stays_valid(tmp_path: Path) -> None:
    body = {"prompt": "on and on", "max_tokens": 3000, "stream": True, "ignore_eos": True}
    with serving(tmp_path / "log", "--grace", "60") as server:
        text, _ = ask(server)
        with httpx.stream("POST", f"{server.url}/v1/completions", json=body, timeout=30) as reply:
            lines = reply.iter_lines()
            next(lines)
            server.process.send_signal(signal.SIGINT)
            time.sleep(0.1)
            told_s = time.monotonic()
            assert server.stop(signal.SIGINT) == 130
            assert time.monotonic() - told_s < 2
            lines.close()
        assert "left at once" in server.log.read_text().splitlines()[-1]
    with serving(tmp_path / "log") as server:
        assert ask(server)[0] == text
        assert server.stop() == 0


@pytest.mark.parametrize("flags", [("--ssd-cache", "0"), ("--no-cache",)])
def test_without_a_cache_on_disk_there_is_no_file(tmp_path: Path, flags: tuple[str, ...]) -> None:
    with serving(tmp_path / "log", *flags) as server:
        ask(server)
        assert server.stop() == 0
    assert not (tmp_path / "base").exists()
