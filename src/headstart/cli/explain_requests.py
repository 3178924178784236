"""`headstart explain REQUEST REQUEST`: two requests alone, and where the second parts from the first."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from headstart.blame.bodies import dialect_of, prompt_of
from headstart.blame.exchange import Dialect, Exchange
from headstart.cli.explain_pair import show_pair
from headstart.errors import ConfigError

__all__ = ["run"]


def run(flags: argparse.Namespace) -> int:
    """Exit status 0: both were read. Raises ConfigError for a file that is no request."""
    bodies = [_body(name) for name in flags.words]
    asked = None if flags.dialect is None else Dialect(flags.dialect)
    exchanges = [
        Exchange(number, 0.0, asked or _dialect(name, body), "", body)
        for number, (name, body) in enumerate(zip(flags.words, bodies, strict=True), 1)
    ]
    for name, exchange in zip(flags.words, exchanges, strict=True):
        _readable(name, exchange)
    show_pair((exchanges[0], exchanges[1]), flags, f"{flags.words[0]}, {flags.words[1]}")
    return 0


def _body(name: str) -> Any:
    try:
        text = Path(name).read_bytes()
    except OSError as problem:
        raise ConfigError(f"{name} cannot be read: {problem.strerror or problem}") from None
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as problem:
        raise ConfigError(
            f"{name} is not JSON ({problem}); expected the body of a request, as its client sent it"
        ) from None


def _dialect(name: str, body: Any) -> Dialect:
    found = dialect_of("", body)
    if found is None:
        raise ConfigError(
            f"{name} looks like no request that is known: it has no messages, input or prompt; --dialect "
            "says what it is"
        )
    return found


def _readable(name: str, exchange: Exchange) -> None:
    try:
        prompt_of(exchange.dialect, exchange.body)
    except ValueError as problem:
        raise ConfigError(f"{name}: {problem}") from None
