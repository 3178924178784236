"""`headstart explain`: a log in words and as JSON, and what it refuses."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from headstart.cli import explain, explain_log, main
from headstart.cli.explain import Kind, kind_of
from headstart.errors import ConfigError
from tests.blame.logs.reads import OLD_LLAMA, REAL

HYBRID = str(REAL / "llama-server-hybrid-verbose.log")


def told(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(["explain", *arguments]) == 0
    answer = capsys.readouterr()
    assert answer.err == ""
    return answer.out


def refused(capsys: pytest.CaptureFixture[str], status: int, *arguments: str) -> str:
    assert main(["explain", *arguments]) == status
    answer = capsys.readouterr()
    assert answer.out == ""
    assert answer.err.startswith("headstart: ")
    assert answer.err.count("\n") == 1
    return answer.err


def test_in_words(capsys: pytest.CaptureFixture[str]) -> None:
    out = told(capsys, HYBRID)
    assert "reuse     2,865 of 5,161 prompt tokens (55.5 %)" in out
    assert "points    12 checkpoints made, 9 erased, 3 restored" in out
    assert "7 turns, by tokens read:" in out
    rows = [line.split() for line in out.splitlines() if line[:6].strip().isdecimal() and "." not in line[:4]]
    assert [row[0] for row in rows] == ["4", "1", "5", "6", "3", "2", "7"]
    assert rows[2] == ["5", "0", "867", "351", "516", "807", "456", "0.08"]
    assert "1. PROMPT_CHANGED (client)" in out
    assert "2. SERVER_GAP (server): 456 tokens" in out
    assert "--checkpoint-min-step 256 --ctx-checkpoints 32" in out
    assert max(map(len, out.splitlines())) < 400


def test_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    found: dict[str, Any] = json.loads(told(capsys, HYBRID, "--json"))
    assert found["format"] == "llama-server"
    assert (found["prompt_tokens"], found["cached_tokens"]) == (5161, 2865)
    assert found["checkpoints"]["made"] == 12
    assert [one["cause"] for one in found["findings"]] == ["PROMPT_CHANGED", "SERVER_GAP"]
    assert found["most_expensive_turns"][2]["shared_tokens"] == 807
    assert found["lines"]["not_understood"] == 0


def test_from_a_pipe(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(OLD_LLAMA.encode())))
    assert "1 turn, by tokens read" in told(capsys, "-")


def test_a_clean_log_has_no_finding(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    log.write_text("".join((REAL / "llama-server-dense.log").read_text().splitlines(keepends=True)[:33]))
    assert "0 findings" in told(capsys, str(log))


def test_what_is_no_log(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    empty, other = tmp_path / "empty", tmp_path / "other"
    empty.write_text("")
    other.write_bytes(bytes(range(256)) * 50)
    assert "is empty" in refused(capsys, 1, str(empty))
    assert "no log that is known" in refused(capsys, 1, str(other))
    assert "no log of vllm" in refused(capsys, 1, str(other), "--format", "vllm")
    assert "cannot be read" in refused(capsys, 2, str(tmp_path / "missing"))
    assert "cannot be read" in refused(capsys, 2, str(tmp_path))
    assert "invalid choice" in refused(capsys, 2, HYBRID, "--format", "vllmm")


def test_what_comes_later_is_told_apart(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    recording = tmp_path / "recording.jsonl"
    recording.write_text('{"format": "headstart-recording", "version": 1}\n{"number": 1}\n')
    log = tmp_path / "log"
    log.write_text('{"format": "something else"}\n')
    assert kind_of([str(recording)]) is Kind.RECORDING
    assert kind_of([str(log)]) is kind_of(["-"]) is kind_of([str(tmp_path / "no")]) is Kind.SERVER_LOG
    assert kind_of(["a", "b"]) is Kind.REQUESTS
    with pytest.raises(ConfigError):
        kind_of(["a", "b", "c"])
    assert set(explain.EXPLAIN) == set(Kind)
    assert "no exchange" in refused(capsys, 1, str(recording))
    assert "cannot be read" in refused(capsys, 2, "a", "b")
    assert "--html does not go with a log" in refused(capsys, 2, HYBRID, "--html", "x")


def test_progress_is_told_when_it_takes_long(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(explain_log, "QUIET_S", 0.0)
    log = tmp_path / "long.log"
    log.write_text(OLD_LLAMA * 3000)
    assert main(["explain", str(log)]) == 0
    steps = capsys.readouterr().err.splitlines()
    assert len(steps) >= 2
    assert steps[-1] == "read 2.8 MB of 2.8 MB"


def test_a_log_cannot_act_on_the_terminal(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    log = tmp_path / "evil.log"
    log.write_text(OLD_LLAMA + "srv  init: build_info: b1\x07\x1b]0;title\x07 \x9b31m\n")
    assert "\x1b" not in (out := told(capsys, str(log)))
    assert "\x07" not in out and "\x9b" not in out
