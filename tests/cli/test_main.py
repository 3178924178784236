"""The command line as a person meets it: help that teaches, one line where something is wrong."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from headstart import __version__
from headstart.cli import main, parse
from headstart.cli.flags import given_flags
from headstart.config import OPTIONS


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """`headstart ARGUMENTS` in a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "headstart", *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, **environment},
    )


def test_version() -> None:
    done = run("--version")
    assert (done.returncode, done.stdout) == (0, f"headstart {__version__}\n")


def test_help_lists_the_commands_and_examples(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--help"])
    shown = capsys.readouterr().out
    assert ended.value.code == 0
    assert "serve" in shown
    assert "examples:" in shown


def test_serve_help_explains_every_option(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["serve", "--help"])
    shown = " ".join(capsys.readouterr().out.split())
    for option in OPTIONS:
        assert option.flag in shown
        assert f"[{option.variable}]" in shown
    assert "(default: 4GB)" in shown
    assert "--no-flash-attention" in shown
    assert "headstart serve --model" in shown


def test_help_does_not_load_the_engine() -> None:
    code = "import sys, headstart.cli as c; c.build_parser(); sys.exit('llama_cpp' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["srve"], "there is no command 'srve'; did you mean serve?; see headstart --help"),
        (["serve", "--ram-cach", "4GB"], "unknown argument --ram-cach; did you mean --ram-cache?"),
        (["serve", "extra"], "unknown argument extra; see headstart --help"),
        (["serve", "--port"], "argument --port: expected one argument"),
        (["serve", "--port", "eighty"], "--port 'eighty': expected a whole number from 0 to 65535"),
        (["serve", "--ram-cache", "4 gigs"], "--ram-cache '4 gigs': expected a size such as 4GB"),
        (["serve", "--batching", "exakt"], "expected exact or shared; did you mean exact?"),
        (["serve", "--host", "0.0.0.0"], "--host 0.0.0.0 can be reached from other machines"),
        (["serve", "--config", "/nowhere.toml"], "--config /nowhere.toml: there is no such file"),
    ],
)
def test_what_cannot_be_used_is_one_line_and_status_2(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in os.environ if name.startswith("HEADSTART_")]:
        monkeypatch.delenv(name)
    assert main(arguments) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith("headstart: ")
    assert message in shown.err
    assert shown.err.count("\n") == 1


def test_no_command_shows_help_and_status_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    assert "usage: headstart" in capsys.readouterr().err


def test_flags_that_were_left_out_are_not_given() -> None:
    assert given_flags(parse(["serve"]), OPTIONS) == {}
    given = given_flags(parse(["serve", "--no-cache", "--api-key", "a", "--api-key", "b"]), OPTIONS)
    assert given == {"cache": False, "api_keys": ["a", "b"]}


def test_flags_are_not_abbreviated() -> None:
    assert main(["serve", "--no-cach"]) == 2
