"""`headstart launch AGENT`: a coding agent on a headstart server; its own settings stay as they are."""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType

from headstart.cli.cache_action import answer
from headstart.cli.launch_agents import AGENTS, FOLDER, Agent, Setup, Target
from headstart.cli.launch_server import found, started
from headstart.cli.stopping import Stop
from headstart.cli.terminal import Terminal
from headstart.errors import ConfigError
from headstart.options import suggestion

SUMMARY = "start a coding agent on this server"
DESCRIPTION = """\
Starts a coding agent with its address, model and context set to those of a headstart server, and with the
settings that keep its prompts' beginnings the same. All of that is in the agent's environment and command
line and ends with it; your own settings of the agent are not changed.

A server that runs at --url is used; where none does, one is started there and stopped when the agent ends."""
EPILOG = f"""\
agents: {", ".join(AGENTS)}

examples:
  headstart launch claude
  headstart launch codex -- exec "what does this repository do?"      what follows -- is the agent's own
  headstart launch qwen --serve-flags "--model ~/models/qwen3.gguf --ctx-size 65536"
  headstart launch opencode --print                                   only shows what would be set

Exit status: the agent's own; 2 for a flag that cannot be used, 1 where the server does not start.
"""
LAST_WORDS_S = 10.0
UNKNOWN_MODEL = "headstart"
"""The name that is shown where no server is there to ask; a server takes any."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of the command."""
    parser.add_argument(
        "agent", nargs="?", metavar="AGENT", help=f"One of {', '.join(AGENTS)}; its own arguments behind --."
    )
    parser.add_argument(
        "--url", default="http://127.0.0.1:8000", help="The server's address. (default: %(default)s)"
    )
    parser.add_argument(
        "--api-key", metavar="KEY", help="The server's key, where it wants one. [HEADSTART_API_KEY]"
    )
    parser.add_argument(
        "--serve-flags",
        default="",
        metavar="FLAGS",
        help="Flags of `headstart serve` for a server that is started, in one word.",
    )
    parser.add_argument(
        "--print", action="store_true", dest="show", help="Show variables and command; start nothing."
    )
    parser.add_argument("--json", action="store_true", help="With --print: as one JSON object.")


def run(flags: argparse.Namespace) -> int:
    """The agent's exit status. Raises ConfigError for an agent there is not, HeadstartError where no server
    can be had."""
    agent = _agent(flags.agent)
    key = flags.api_key or os.environ.get("HEADSTART_API_KEY")
    target = Target(flags.url.rstrip("/").removesuffix("/v1"), UNKNOWN_MODEL, key=key)
    if flags.show:
        return _show(agent, agent.setup(found(target) or target), flags.others, as_json=flags.json)
    if flags.json:
        raise ConfigError("--json goes with --print")
    program = shutil.which(agent.program)
    if program is None:
        raise ConfigError(
            f"{agent.program} is not installed: no program of that name is in PATH. "
            f"Install it with: npm install -g {agent.package}"
        )
    with _left_in_order():
        running = found(target)
        if running is not None:
            return _run(program, agent.setup(running), flags.others)
        with started(target, flags.serve_flags, Terminal()) as running:
            return _run(program, agent.setup(running), flags.others)


def _agent(name: str | None) -> Agent:
    if name is None:
        raise ConfigError(f"which agent? Give one of {', '.join(AGENTS)}; see headstart launch --help")
    if name not in AGENTS:
        raise ConfigError(
            f"there is no agent {name!r}{suggestion(name, AGENTS)} (there are {', '.join(AGENTS)})"
        )
    return AGENTS[name]


def _show(agent: Agent, setup: Setup, arguments: Sequence[str], *, as_json: bool) -> int:
    command = [agent.program, *setup.arguments, *arguments]
    if as_json:
        told = {"command": command, "environment": dict(setup.environment), "unset": list(setup.unset)}
        answer({**told, "files": dict(setup.files)})
        return 0
    for name in setup.unset:
        print(f"unset {name}")
    for name, value in setup.environment.items():
        print(f"export {name}={shlex.quote(value)}")
    for name, content in setup.files.items():
        print(f"# {FOLDER} is a folder with {name}, which goes when the agent ends: {content.strip()}")
    print(shlex.join(command))
    return 0


def _run(program: str, setup: Setup, arguments: Sequence[str]) -> int:
    with _files(setup) as (words, environment):
        process = subprocess.Popen([program, *words, *arguments], env=environment)
        # The terminal sends an interrupt to the agent as well, and what it does about it is its own affair.
        before = signal.signal(signal.SIGINT, signal.SIG_IGN)
        try:
            status = process.wait()
        finally:
            signal.signal(signal.SIGINT, before)
            if process.poll() is None:
                process.terminate()
                with suppress(subprocess.TimeoutExpired):
                    process.wait(LAST_WORDS_S)
                process.kill()
    return status if status >= 0 else 128 - status


@contextmanager
def _left_in_order() -> Iterator[None]:
    """SIGTERM and SIGHUP raise Stop inside, so that neither the agent nor its server is left behind."""

    def stop(number: int, _: FrameType | None) -> None:
        raise Stop

    before = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def _files(setup: Setup) -> Iterator[tuple[list[str], Mapping[str, str]]]:
    """Arguments and environment, with the setup's files there."""
    environment = {name: value for name, value in os.environ.items() if name not in setup.unset}
    environment |= setup.environment
    if not setup.files:
        yield list(setup.arguments), environment
        return
    with tempfile.TemporaryDirectory(prefix="headstart-launch-") as folder:
        for name, content in setup.files.items():
            (Path(folder) / name).write_text(content, encoding="utf-8")
        yield [word.replace(FOLDER, folder) for word in setup.arguments], environment
