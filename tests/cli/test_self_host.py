"""`headstart accept --self-host`: the harness starts headstart's own server."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from headstart.cli import main


def test_headstart_judges_itself(tmp_path: Path) -> None:
    out = tmp_path / "results"
    words = ["accept", "--self-host", "toy", "--serve-flags", "--engine toy", "--tiers", "1k"]
    assert main([*words, "--only", "preflight,cold,exact_repeat,restart", "--out", str(out)]) == 0
    results = json.loads((out / "results.json").read_text())
    outcomes = {verdict["gate"]: verdict["outcome"] for verdict in results["verdicts"]}
    assert outcomes["exact_repeat"] == outcomes["restart"] == "PASS"
    assert results["target"]["server"] == "headstart"
    assert "ready" in (out / "server.log").read_text()


@pytest.mark.parametrize("other", ["--spawn", "--restart-cmd", "--control-cmd", "--control-url"])
def test_another_server_beside_it_is_wrong_usage(
    other: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "results"
    assert main(["accept", "--self-host", "toy", other, "x", "--out", str(out)]) == 2
    assert f"leave out {other}" in capsys.readouterr().err
    assert main(["accept", "http://127.0.0.1:1", "--self-host", "toy", "--out", str(out)]) == 2
    assert "leave out a URL" in capsys.readouterr().err
    assert not out.exists()


def test_a_model_that_is_not_there_says_what_the_server_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "results"
    assert main(["accept", "--self-host", str(tmp_path / "no.gguf"), "--out", str(out)]) == 1
    assert "its output is in" in capsys.readouterr().out
    assert "no.gguf" in (out / "server.log").read_text()


def test_flags_that_cannot_be_split_are_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["accept", "--self-host", "toy", "--serve-flags", "--a 'b"]) == 2
    assert "--serve-flags: No closing quotation" in capsys.readouterr().err
