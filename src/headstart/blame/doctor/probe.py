"""Which servers run on this machine: known ports of the loopback address, asked all at once."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor

from headstart.blame.doctor.facts import ServerFacts
from headstart.blame.doctor.http import TIMEOUT_S, Loopback
from headstart.blame.doctor.servers import KINDS

PORTS = (8000, 8080, 11434, 1234, 30000, 10240, 8001, 8081, 8008, 8888, 5000, 5001, 9090, 1337)


def servers(
    ports: Iterable[int] = PORTS, commands: Sequence[Sequence[str]] = (), timeout_s: float = TIMEOUT_S
) -> tuple[ServerFacts, ...]:
    """Servers that answer on these ports. `commands`: command lines of running processes."""
    asked = tuple(dict.fromkeys(ports))
    if not asked:
        return ()

    def look(port: int) -> ServerFacts | None:
        return server_at(port, commands, timeout_s)

    with ThreadPoolExecutor(max_workers=len(asked)) as pool:
        return tuple(found for found in pool.map(look, asked) if found is not None)


def server_at(
    port: int, commands: Sequence[Sequence[str]] = (), timeout_s: float = TIMEOUT_S
) -> ServerFacts | None:
    """The server on that port; None where nothing listens or nothing known answers."""
    if not _listens(port, timeout_s):
        return None
    http = Loopback(port, timeout_s)
    for read in KINDS:
        found = _read(read, http, commands)
        if found is not None:
            return found
    return None


def _read(
    read: Callable[[Loopback, Sequence[Sequence[str]]], ServerFacts | None],
    http: Loopback,
    commands: Sequence[Sequence[str]],
) -> ServerFacts | None:
    """A reply of an unforeseen shape is a server that is not known."""
    try:
        return read(http, commands)
    except (AttributeError, TypeError, ValueError, KeyError):
        return None


def _listens(port: int, timeout_s: float) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=timeout_s):
            return True
    except OSError:
        return False
