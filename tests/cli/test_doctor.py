"""`headstart doctor`: what it says, how it exits, and that it keeps secrets."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headstart.blame.doctor import probe
from headstart.blame.doctor.facts import MachineFacts
from headstart.cli import doctor, main
from tests.blame.doctor.served import LLAMA, OLLAMA, VLLM, serving
from tests.fixtures.gguf_models import GgufModels

SECRET = "sk-ant-oat01-do-not-show"


@pytest.fixture(autouse=True)
def bare_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """No server, no agent, room for everything."""
    monkeypatch.setattr(probe, "PORTS", ())
    monkeypatch.setattr(doctor, "machine", lambda kept: MachineFacts(64 << 30, 32 << 30, 0, {"x": 90 << 30}))
    monkeypatch.setattr(doctor.shutil, "which", lambda program: None)
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("ANTHROPIC_BASE_URL", "XDG_CONFIG_HOME", "CODEX_HOME", *doctor.VARIABLES):
        monkeypatch.delenv(name, raising=False)
    yield


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    status = main(["doctor", *arguments])
    answer = capsys.readouterr()
    assert answer.err == ""
    return status, answer.out


def as_json(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, Any]:
    status, out = run(capsys, *arguments, "--json")
    return status, json.loads(out)


def test_nothing_runs(capsys: pytest.CaptureFixture[str]) -> None:
    status, out = run(capsys)
    assert status == 0
    assert "none answers" in out
    assert "0 errors, 0 warnings, 0 notes" in out


def test_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    with serving(OLLAMA) as served:
        status, out = run(capsys, "--port", str(served.port))
    assert status == 3
    assert (
        f"server   ollama on http://127.0.0.1:{served.port}, version 0.20.1; q:4b; context 4,096 tokens"
        in out
    )
    assert "ERROR CONTEXT_TOO_SMALL" in out
    assert "OLLAMA_CONTEXT_LENGTH=65536 ollama serve" in out


def test_a_warning(capsys: pytest.CaptureFixture[str]) -> None:
    props = {**LLAMA["/props"], "default_generation_settings": {"n_ctx": 40000}}
    with serving({**LLAMA, "/props": props}) as served:
        status, found = as_json(capsys, "--port", str(served.port))
    assert status == 1
    assert [one["severity"] for one in found["complaints"]] == ["warning"]
    assert found["servers"][0]["context_tokens"] == 40000
    assert "model_path" not in found["servers"][0]


def test_a_note(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / ".claude").mkdir()
    (tmp_path / ".claude" / "settings.json").write_text(json.dumps({"env": {"ANTHROPIC_AUTH_TOKEN": SECRET}}))
    status, out = run(capsys)
    assert status == 0
    assert "agent    claude" in out
    assert "NOTE ATTRIBUTION: Claude Code" in out


def test_secrets_are_never_told(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ".claude").mkdir()
    (tmp_path / ".claude" / "settings.json").write_text(
        json.dumps({"env": {"ANTHROPIC_AUTH_TOKEN": SECRET, "CLAUDE_CODE_ATTRIBUTION_HEADER": SECRET}})
    )
    monkeypatch.setenv("ANTHROPIC_API_KEY", SECRET)
    monkeypatch.setenv("ANTHROPIC_BASE_URL", f"http://user:{SECRET}@127.0.0.1:8000")
    with serving(LLAMA) as served:
        words = ("llama-server", "--port", str(served.port), "--api-key", SECRET, "--cache-ram", "0")
        monkeypatch.setattr(doctor, "commands", lambda: (words,))
        for arguments in ([], ["--json"]):
            _, out = run(capsys, "--port", str(served.port), *arguments)
            assert "SIDE_REQUEST_EVICTED" in out
            assert SECRET not in out


def test_the_models_file_tells_what_the_server_does_not(
    capsys: pytest.CaptureFixture[str], gguf_models: GgufModels
) -> None:
    for path, cause in ((gguf_models.gemma3, "--swa-full"), (gguf_models.qwen35, "--checkpoint-min-step")):
        props = {**LLAMA["/props"], "default_generation_settings": {"n_ctx": 70000}, "model_path": str(path)}
        with serving({**LLAMA, "/props": props}) as served:
            _, found = as_json(capsys, "--port", str(served.port))
        assert any(cause in one["fix"]["command"] for one in found["complaints"]), path
        assert found["servers"][0]["state_bytes"] > 0


def test_several_servers(capsys: pytest.CaptureFixture[str]) -> None:
    with serving(LLAMA) as one, serving(VLLM) as two:
        status, found = as_json(capsys, "--port", str(one.port), "--port", str(two.port))
    assert status == 3
    assert [server["kind"] for server in found["servers"]] == ["llama-server", "vllm"]
    assert "SPECULATION_ON_HYBRID" in {complaint["cause"] for complaint in found["complaints"]}


@pytest.mark.parametrize("port", ["0", "70000", "x", "-1", "8" * 5000])
def test_a_port_that_is_none(capsys: pytest.CaptureFixture[str], port: str) -> None:
    assert main(["doctor", f"--port={port}"]) == 2
    assert "is no port" in capsys.readouterr().err
