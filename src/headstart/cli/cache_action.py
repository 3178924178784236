"""What the commands of `headstart cache` have in common: their form, their flags, how they answer."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headstart.cli.cache_client import ServerClient
from headstart.cli.flags import add_flags, given_flags
from headstart.config import OPTIONS, Settings, resolve
from headstart.errors import ConfigError
from headstart.prefix.conversations import Conversation

_PLACES = ("base_path", "ssd_cache_dir")
ID_DIGITS = 12
"""Hex digits of a conversation's key that are shown; fewer will do where they are unique."""


@dataclass(frozen=True)
class Action:
    """One command of `headstart cache`."""

    name: str
    usage: str
    summary: str
    description: str
    add_arguments: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace], int]
    epilog: str = ""


def add_store_flags(parser: argparse.ArgumentParser) -> None:
    """Where the store is: the flags, environment variables and settings file of `serve`."""
    parser.add_argument(
        "--config",
        type=Path,
        metavar="FILE",
        help="TOML file with the server's settings. [HEADSTART_CONFIG]",
    )
    add_flags(parser, [option for option in OPTIONS if option.field_name in _PLACES])


def add_server_flags(parser: argparse.ArgumentParser) -> None:
    """Where the server is and how to be let in."""
    server = parser.add_argument_group("running server")
    server.add_argument(
        "--url", metavar="URL", help="Address of the running server. (default: http://127.0.0.1:8000)"
    )
    server.add_argument(
        "--api-key",
        dest="api_keys",
        action="append",
        default=argparse.SUPPRESS,
        metavar="KEY",
        help="API key to send. [HEADSTART_API_KEY]",
    )


def settings_of(arguments: argparse.Namespace) -> Settings:
    """The server's settings as far as they are known here. Raises ConfigError."""
    return resolve(given_flags(arguments, OPTIONS), os.environ, getattr(arguments, "config", None))


def client_of(arguments: argparse.Namespace) -> ServerClient:
    """The server that `arguments` name."""
    settings = settings_of(arguments)
    url = arguments.url or f"http://127.0.0.1:{settings.port or 8000}"
    return ServerClient(url, settings.api_keys[0] if settings.api_keys else None)


def chosen(found: Sequence[Conversation], keys: Iterable[str]) -> list[Conversation]:
    """The conversations whose keys begin as `keys` do. Raises ConfigError unless each names exactly one."""
    picked: dict[bytes, Conversation] = {}
    for key in keys:
        matching = [one for one in found if one.key.hex().startswith(key.lower())] if key else []
        if len(matching) != 1:
            many = f"{len(matching)} conversations begin with it; give more digits"
            none = "no conversation has it; `headstart cache ls` shows them"
            raise ConfigError(f"key {key!r}: {many if matching else none}")
        picked[matching[0].key] = matching[0]
    return list(picked.values())


def answer(value: Any) -> None:
    """One JSON value on stdout."""
    print(json.dumps(value, indent=2, ensure_ascii=False))


def printable(text: str) -> str:
    """`text` on one line, without anything a terminal would act on."""
    return " ".join("".join(char if char.isprintable() else " " for char in text).split())


def table(rows: Sequence[Sequence[str]], right: Iterable[int] = ()) -> list[str]:
    """Lines of columns as wide as they need to be; columns in `right` are flush right, the last is free."""
    flush_right = set(right)
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = []
    for row in rows:
        cells = [
            cell.rjust(width) if column in flush_right else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  ".join(cells).rstrip())
    return lines


def counted(n: int, what: str) -> str:
    """ "1 file", "2 files"."""
    return f"{n:,} {what}{'' if n == 1 else 's'}"


def ago(seconds_s: float) -> str:
    """How long ago, in the largest unit that leaves at least 1."""
    for unit, size_s in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds_s >= size_s:
            return f"{seconds_s // size_s:.0f} {unit} ago"
    return f"{max(0.0, seconds_s):.0f} s ago"
