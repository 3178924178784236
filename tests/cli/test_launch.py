"""`headstart launch`: what an agent is started with, and on which server."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from headstart.cli import main
from headstart.cli.launch_agents import AGENTS, Target
from tests.e2e.test_serve import serving

AGENT = """#!{python}
import json, os, sys, urllib.request
names = ("ANTHROPIC_BASE_URL", "ANTHROPIC_MODEL", "ANTHROPIC_API_KEY", "CLAUDE_CODE_MAX_CONTEXT_TOKENS")
told = {{"argv": sys.argv[1:], "environment": {{name: os.environ.get(name) for name in names}}}}
files = [word for word in sys.argv if word.endswith("headstart.js")]
told["files"] = [open(name).read() for name in files]
if os.environ.get("ANTHROPIC_BASE_URL"):
    body = {{"model": os.environ["ANTHROPIC_MODEL"], "max_tokens": 1}}
    body["messages"] = [{{"role": "user", "content": "a"}}]
    url = os.environ["ANTHROPIC_BASE_URL"] + "/v1/messages"
    kind = {{"Content-Type": "application/json"}}
    reply = urllib.request.urlopen(urllib.request.Request(url, json.dumps(body).encode(), kind))
    told["model"] = json.load(reply)["model"]
json.dump(told, open({told!r}, "w"))
sys.exit(7)
"""


@pytest.fixture
def told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What the stand-ins for agents say of how they were started, as JSON; they are all that PATH has."""
    bin_, file = tmp_path / "bin", tmp_path / "told.json"
    bin_.mkdir()
    for name in ("claude", "pi"):
        (bin_ / name).write_text(AGENT.format(python=sys.executable, told=str(file)))
        (bin_ / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(bin_))
    monkeypatch.setenv("ANTHROPIC_API_KEY", "of another account")
    return file


def free_url() -> str:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{one.getsockname()[1]}"


def test_an_agent_is_started_on_the_server_that_runs(told: Path, tmp_path: Path) -> None:
    with serving(tmp_path / "log", "--model-name", "mine") as server:
        assert main(["launch", "claude", "--url", f"{server.url}/v1", "--", "-p", "hi there"]) == 7
    seen = json.loads(told.read_text())
    assert seen["argv"] == ["-p", "hi there"]
    assert seen["environment"] == {
        "ANTHROPIC_BASE_URL": server.url,
        "ANTHROPIC_MODEL": "mine",
        "ANTHROPIC_API_KEY": None,
        "CLAUDE_CODE_MAX_CONTEXT_TOKENS": "4096",
    }
    assert seen["model"] == "mine"


def test_a_server_is_started_for_it_and_ends_with_it(
    told: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HEADSTART_BASE_PATH", str(tmp_path / "base"))
    url = free_url()
    flags = "--engine toy --model-name 'made for it'"
    assert main(["launch", "claude", "--url", url, "--serve-flags", flags]) == 7
    assert json.loads(told.read_text())["model"] == "made for it"
    said = capfd.readouterr().err
    assert f"nothing answers at {url}: starting a server there" in said
    assert "the server has stopped" in said
    with pytest.raises(ConnectionRefusedError), socket.create_connection(("127.0.0.1", int(url[-5:]))):
        pass


def test_a_file_is_there_while_the_agent_runs(told: Path, tmp_path: Path) -> None:
    with serving(tmp_path / "log") as server:
        assert main(["launch", "pi", "--url", server.url]) == 7
    seen = json.loads(told.read_text())
    path = Path(seen["argv"][1])
    assert seen["argv"][0] == "-e" and path.name == "headstart.js"
    assert f"{server.url}/v1" in seen["files"][0]
    assert not path.exists() and not path.parent.exists()


def test_it_can_be_shown_without_a_server(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["launch", "claude", "--url", free_url(), "--print", "--", "-p", "two words"]) == 0
    out = capsys.readouterr().out
    assert "unset ANTHROPIC_API_KEY\n" in out
    assert "export CLAUDE_CODE_ATTRIBUTION_HEADER=0\n" in out
    assert out.endswith("claude -p 'two words'\n")
    assert main(["launch", "codex", "--url", free_url(), "--print", "--json"]) == 0
    shown: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert shown["command"][:3] == ["codex", "-c", 'model="headstart"']


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["clude"], "there is no agent 'clude'; did you mean claude? (there are claude, codex"),
        ([], "which agent? Give one of claude, codex"),
        (
            ["qwen"],
            "no program of that name is in PATH. Install it with: npm install -g @qwen-code/",
        ),
        (["claude", "--json"], "--json goes with --print"),
        (["claude", "--url", "http://192.0.2.7:x"], "cannot be asked"),
        (["claude", "--url", "https://127.0.0.1:1"], "a server is started on this machine only"),
        (["claude", "--serve-flags", "'"], "--serve-flags: No closing quotation"),
    ],
)
def test_what_cannot_be(
    told: Path, arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    if "--url" not in arguments:
        arguments = [*arguments, "--url", free_url()]
    assert main(["launch", *arguments]) == 2
    assert said in capsys.readouterr().err


def test_a_server_that_does_not_start_says_why(told: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flags = "--model /nowhere/m.gguf"
    assert main(["launch", "claude", "--url", free_url(), "--serve-flags", flags]) == 1
    assert "there is no model at /nowhere/m.gguf" in capsys.readouterr().err


def test_a_server_with_a_key(told: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with serving(tmp_path / "log", HEADSTART_API_KEY="sesame-open-48") as server:
        assert main(["launch", "pi", "--url", server.url]) == 2
        assert "wants a key: give it with --api-key" in capsys.readouterr().err
        assert main(["launch", "pi", "--url", server.url, "--api-key", "sesame-open-48"]) == 7


@pytest.mark.parametrize("name", AGENTS)
def test_every_agent_is_told_address_model_and_context(name: str) -> None:
    target = Target("http://127.0.0.1:8000", "qwen3", 40_960, "k-1")
    setup = AGENTS[name].setup(target)
    all_of_it = json.dumps([setup.arguments, dict(setup.environment), dict(setup.files)])
    assert "http://127.0.0.1:8000" in all_of_it
    assert "qwen3" in all_of_it
    assert "k-1" in all_of_it
    assert ("40960" in all_of_it) is (name != "qwen"), "Qwen Code has no setting for it"


def test_an_interrupt_is_the_agents(tmp_path: Path) -> None:
    """It may catch it and go on; the launcher waits for its end."""
    agent = tmp_path / "claude"
    agent.write_text(
        f"#!{sys.executable}\nimport signal, sys, time\n"
        "signal.signal(signal.SIGINT, lambda *_: sys.exit(5))\nprint('up', flush=True)\ntime.sleep(60)\n"
    )
    agent.chmod(0o755)
    with serving(tmp_path / "log") as server:
        process = subprocess.Popen(
            [sys.executable, "-m", "headstart", "launch", "claude", "--url", server.url],
            env={**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"},
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        assert process.stdout is not None and process.stdout.readline() == b"up\n"
        time.sleep(0.1)
        os.killpg(process.pid, signal.SIGINT)
        assert process.wait(20) == 5


def test_neither_agent_nor_server_is_left_behind(tmp_path: Path) -> None:
    """Whoever ends the launcher, as a closed terminal does, ends both."""
    agent = tmp_path / "claude"
    agent.write_text(f"#!{sys.executable}\nimport os, time\nprint(os.getpid(), flush=True)\ntime.sleep(60)\n")
    agent.chmod(0o755)
    url = free_url()
    process = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "headstart",
            "launch",
            "claude",
            "--url",
            url,
            "--serve-flags",
            "--engine toy",
        ],
        env={**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "HEADSTART_BASE_PATH": str(tmp_path)},
        stdout=subprocess.PIPE,
    )
    assert process.stdout is not None
    number = int(process.stdout.readline())
    process.send_signal(signal.SIGTERM)
    assert process.wait(30) != 0
    with pytest.raises(ProcessLookupError):
        os.kill(number, 0)
    with pytest.raises(ConnectionRefusedError), socket.create_connection(("127.0.0.1", int(url[-5:]))):
        pass
