"""`headstart doctor`: what on this machine will make prompts be read again."""

from __future__ import annotations

import argparse
import os
import shutil
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from headstart.blame.doctor import probe
from headstart.blame.doctor.agents import agents
from headstart.blame.doctor.checks import examine
from headstart.blame.doctor.facts import Complaint, Facts, ServerFacts, Severity
from headstart.blame.doctor.machine import commands, machine
from headstart.cli.cache_action import answer, counted, printable
from headstart.cli.explain_log import finding_json
from headstart.cli.models_show import sheet_for
from headstart.cli.terminal import format_bytes
from headstart.engines.fact_sheet import FactSheet, Kind
from headstart.errors import ConfigError, HeadstartError

SUMMARY = "look for what on this machine makes prompts be read again"
DESCRIPTION = """\
Looks at servers that run on this machine (loopback ports only), at settings of coding agents, and at memory,
disk and power, and says what will make prompts be read again. Changes nothing; shows nothing secret."""
EPILOG = f"""\
ports that are asked: {", ".join(map(str, probe.PORTS))}

examples:
  headstart doctor
  headstart doctor --port 8123     a server on another port, too
  headstart doctor --json          for a program

Exit status: 0 nothing, or notes only; 1 a warning: prompts will be read again; 2 a flag that cannot be used;
3 an error: an agent cannot work so.
"""
STATUS = {Severity.NOTE: 0, Severity.WARNING: 1, Severity.ERROR: 3}
VARIABLES = ("OLLAMA_CONTEXT_LENGTH", "OLLAMA_NUM_PARALLEL", "OLLAMA_KEEP_ALIVE", "OLLAMA_KV_CACHE_TYPE")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of the command."""
    parser.add_argument("--json", action="store_true", help="Answer with one JSON object on stdout.")
    parser.add_argument(
        "--port",
        dest="ports",
        action="append",
        default=[],
        metavar="PORT",
        help="A further port of 127.0.0.1 to ask. Repeatable.",
    )


def run(flags: argparse.Namespace) -> int:
    """Exit status by the gravest complaint. Raises ConfigError for a port that is none."""
    facts = look((*map(_port, flags.ports), *probe.PORTS))
    complaints = examine(facts)
    if flags.json:
        answer(_json(facts, complaints))
    else:
        for line in _text(facts, complaints):
            print(line)
    return max((STATUS[one.severity] for one in complaints), default=0)


def _port(word: str) -> int:
    if not word.isdecimal() or not 0 < int(word[:6]) < 65536:
        raise ConfigError(f"--port {word} is no port: a number from 1 to 65535 is expected")
    return int(word)


def look(ports: tuple[int, ...], home: Path | None = None) -> Facts:
    """All that is known about this machine. `home`: the user's directory."""
    home = home or Path.home()
    return Facts(
        servers=tuple(map(_with_model, probe.servers(ports, commands()))),
        agents=agents(home, os.environ, shutil.which),
        machine=machine({"the user's cache": home / ".cache", "Ollama's models": home / ".ollama"}),
        variables={name: os.environ[name][:20] for name in VARIABLES if name in os.environ},
    )


def _with_model(server: ServerFacts) -> ServerFacts:
    """With what the model's file says, where the server names one that can be read."""
    if server.model_path is None or not Path(server.model_path).is_file():
        return server
    try:
        sheet = sheet_for(server.model_path, "llamacpp")
    except (HeadstartError, OSError, ValueError):
        return server
    return replace(
        server,
        recurrent=any(one.kind is Kind.RECURRENT for one in sheet.layer_kinds),
        window_tokens=_window(sheet) or server.window_tokens,
        model_bytes=server.model_bytes or sheet.nbytes,
        trained_tokens=server.trained_tokens or sheet.context_tokens,
        state_bytes=sheet.state.token_bytes if sheet.state else None,
        checkpoint_bytes=sheet.state.sequence_bytes if sheet.state else None,
    )


def _window(sheet: FactSheet) -> int | None:
    reaches = [one.reach_tokens for one in sheet.layer_kinds if one.kind in (Kind.WINDOW, Kind.CHUNKED)]
    return max(reaches, default=None)


def _text(facts: Facts, complaints: list[Complaint]) -> Iterator[str]:
    for server in facts.servers:
        yield f"server   {printable(_server(server))}"
    if not facts.servers:
        yield "server   none answers on the known ports"
    for agent in facts.agents:
        version = f" {agent.version}" if agent.version else ""
        yield f"agent    {agent.name}{version}{', set to a server on this machine' if agent.local else ''}"
    yield f"machine  {_machine(facts)}"
    yield ""
    grave = {one: sum(complaint.severity is one for complaint in complaints) for one in Severity}
    yield ", ".join(counted(grave[one], one.name.lower()) for one in sorted(Severity, reverse=True))
    for complaint in complaints:
        yield from _complaint(complaint)


def _server(server: ServerFacts) -> str:
    parts = [server.name + (f", version {server.version}" if server.version else "")]
    parts.append(server.model or ("" if server.loaded else "no model loaded"))
    if server.context_tokens:
        parts.append(f"context {server.context_tokens:,} tokens")
    if server.slots:
        parts.append(counted(server.slots, "slot"))
    if server.recurrent:
        parts.append("recurrent layers")
    if server.window_tokens:
        parts.append(f"sliding windows of {server.window_tokens:,} tokens")
    return "; ".join(part for part in parts if part)


def _machine(facts: Facts) -> str:
    told = facts.machine
    parts = []
    if told.memory_bytes is not None and told.available_bytes is not None:
        parts.append(f"{format_bytes(told.available_bytes)} of {format_bytes(told.memory_bytes)} memory free")
    parts += [f"{format_bytes(free)} free on disk for {what}" for what, free in told.disks.items()]
    if told.on_battery is not None:
        parts.append("on battery" if told.on_battery else "on mains")
    return "; ".join(parts)


def _complaint(complaint: Complaint) -> Iterator[str]:
    finding = complaint.finding
    yield ""
    yield f"{complaint.severity.name} {finding.cause}: {printable(complaint.about)}"
    yield f"   {printable(finding.said)}."
    yield f"   cost: {complaint.why}."
    yield f"   fix: {finding.fix.text}"
    if finding.fix.command:
        yield f"        {finding.fix.command}"


def _json(facts: Facts, complaints: list[Complaint]) -> dict[str, Any]:
    told = asdict(facts)
    for server in told["servers"]:
        del server["model_path"]
    return told | {
        "complaints": [
            {
                "severity": one.severity.name.lower(),
                "about": one.about,
                "why": one.why,
                **finding_json(one.finding),
            }
            for one in complaints
        ]
    }
