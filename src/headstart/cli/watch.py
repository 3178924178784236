"""`headstart watch`: a proxy that shows, turn by turn, which prompts were read again, and why."""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import socket
import sys
from collections.abc import Callable
from pathlib import Path

from headstart.blame import repairs
from headstart.blame.beside import Beside
from headstart.blame.mending import Mender, Mending
from headstart.blame.proxy import Proxy, Service
from headstart.blame.proxy.heads import Upstream, upstream_of
from headstart.blame.proxy.passing import Passing
from headstart.blame.recording import new_file
from headstart.cli.listen import open_socket, url_of
from headstart.cli.readers import MODEL_HELP, reader_of
from headstart.cli.terminal import Terminal
from headstart.cli.watch_beside import Job
from headstart.config import is_loopback
from headstart.errors import ConfigError

SUMMARY = "pass requests through to a server, and show which prompts it read again"
DESCRIPTION = """\
A proxy in front of an LLM server. Point your agent at it; every byte is passed on as it is, and each
turn gets a line: tokens of the prompt, those reused, those read again, time to the first token. Where a
prefix was lost, the lines below it say by whom, at which place, what it cost and how to mend it."""
DEFAULT_LISTEN = "127.0.0.1:8900"
_REPAIRS = "\n".join(
    f"  {name:<12}{one.summary}{'' if one.default else ' (only where it is named)'}"
    for name, one in repairs.REPAIRS.items()
)
EPILOG = f"""\
repairs that --fix makes on the way, each told of where it was made:
{_REPAIRS}

examples:
  headstart watch --upstream http://127.0.0.1:11434
  headstart watch --upstream http://127.0.0.1:8080 --record today.jsonl
  headstart watch --upstream http://127.0.0.1:8080 --fix billing,tools
  headstart watch --upstream http://127.0.0.1:8080 --model upstream
  OPENAI_BASE_URL=http://{DEFAULT_LISTEN}/v1 my-agent
  ANTHROPIC_BASE_URL=http://{DEFAULT_LISTEN} my-agent

Recordings have keys, tokens and cookies taken out and can be read by you alone.
"""

_SWITCH_S = 0.0005
"""How long a thread that hands over or learns may keep the one that passes bytes on waiting."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--upstream", metavar="URL", help="the server behind, like http://127.0.0.1:11434 (needed)")
    add(
        "--listen",
        metavar="HOST:PORT",
        default=DEFAULT_LISTEN,
        help="where to listen; port 0 takes a free one (default: %(default)s)",
    )
    add("--allow-remote", action="store_true", help="with --listen: let other machines in. There are no keys")
    add("--record", metavar="FILE", type=Path, help="write a recording, JSON lines; a new file")
    add("--no-bodies", action="store_true", help="with --record: of all texts keep only their SHA-256")
    add(
        "--fix",
        metavar="NAME,...",
        nargs="?",
        const="",
        help="repair requests on the way: all that are safe, or these",
    )
    add("--model", metavar="SOURCE", help=f"{MODEL_HELP}. `upstream`: ask the server behind")
    add("--json", action="store_true", help="one JSON object a turn, in place of the lines")


def run(flags: argparse.Namespace) -> int:
    """Exit status: 0 stopped by the user, 2 a flag that cannot be used."""
    if not flags.upstream:
        raise ConfigError("--upstream is missing: the URL of the server, like http://127.0.0.1:11434")
    if flags.no_bodies and flags.record is None:
        raise ConfigError("--no-bodies is for recordings: give --record FILE too")
    upstream = upstream_of(flags.upstream)
    if flags.model not in (None, "upstream"):
        reader_of(flags.model)  # What cannot be used is said now, and not by the process beside.
    host, port = _address(flags.listen, allow_remote=flags.allow_remote)
    mending = None if flags.fix is None else Mending(Mender(repairs.named(flags.fix)))
    listener = open_socket(host, port)
    terminal = Terminal()
    beside = _beside(flags, terminal)
    _introduce(terminal, flags, upstream, url_of(listener), mending)
    sys.setswitchinterval(_SWITCH_S)
    mend = None if mending is None else mending.mend
    finished = beside.finished if mending is None else _both(mending.finished, beside.finished)
    proxy = Proxy(Service(upstream, finished, mend=mend, any_host=flags.allow_remote))
    try:
        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            runner.run(_serve(proxy, listener))
    finally:
        if mending is not None:
            mending.close()
        beside.close()
    terminal.step("stopped")
    if flags.record is not None:
        terminal.step(f"headstart explain {flags.record}   tells of each turn and its differences")
    return 0


def _beside(flags: argparse.Namespace, terminal: Terminal) -> Beside:
    """The process that judges, records and shows. Raises ConfigError where nothing can be recorded."""
    recording = None if flags.record is None else new_file(flags.record)
    model = flags.upstream if flags.model == "upstream" else flags.model
    job = Job(flags.upstream, flags.json, recording, not flags.no_bodies, model)
    keep_open = () if recording is None else (recording,)
    try:
        return Beside(job.command(), lambda trouble: terminal.step(f"watch: {trouble}"), keep_open)
    finally:
        for number in keep_open:
            os.close(number)


def _both(one: Callable[[Passing], None], other: Callable[[Passing], None]) -> Callable[[Passing], None]:
    def finished(passing: Passing) -> None:
        one(passing)
        other(passing)

    return finished


async def _serve(proxy: Proxy, listener: socket.socket) -> None:
    """Until SIGINT or SIGTERM."""
    told = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, told.set)
    server = await proxy.start(listener)
    await told.wait()
    server.close()
    await proxy.stop()


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """uvloop's, where there is uvloop; it needs half the time for passing bytes on."""
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop


def _address(text: str, *, allow_remote: bool) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal() or int(port) > 65535:
        raise ConfigError(f"--listen {text!r}: expected an address and a port, like {DEFAULT_LISTEN}")
    host = host.removeprefix("[").removesuffix("]")
    if not is_loopback(host) and not allow_remote:
        raise ConfigError(
            f"--listen {text}: other machines could reach it, and with it the server behind, without a key; "
            "add --allow-remote if that is meant"
        )
    return host, int(port)


def _introduce(
    terminal: Terminal, flags: argparse.Namespace, upstream: Upstream, url: str, mending: Mending | None
) -> None:
    terminal.fact("server", upstream.url)
    if flags.record is not None:
        kept = "hashes only, no texts" if flags.no_bodies else "keys and tokens taken out"
        terminal.fact("record", f"{flags.record} ({kept}; only you can read it)")
    if mending is not None:
        terminal.fact("fix", ", ".join(mending.names))
    if flags.allow_remote:
        terminal.fact("note", "other machines can reach this address, and nobody is asked for a key")
    terminal.ready(f"ready   {url}   set it as the server's URL in your agent; Ctrl-C ends it")
