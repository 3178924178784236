"""The listening socket, opened before the model is loaded so that a taken port shows at once."""

from __future__ import annotations

import errno
import socket

from headstart.errors import ConfigError

BACKLOG = 2048


def open_socket(host: str, port: int) -> socket.socket:
    """A socket that listens on `host` and `port` (0: a free one). Raises ConfigError."""
    try:
        family, _, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except socket.gaierror as problem:
        raise ConfigError(f"--host {host}: not an address of this machine ({problem.strerror})") from None
    # Without its protocol, asyncio does not know that it may send small pieces at once (TCP_NODELAY).
    listener = socket.socket(family, socket.SOCK_STREAM, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(BACKLOG)
    except OSError as problem:
        listener.close()
        raise ConfigError(_why_not(host, port, problem)) from None
    listener.setblocking(False)
    return listener


def _why_not(host: str, port: int, problem: OSError) -> str:
    if problem.errno == errno.EADDRINUSE:
        return (
            f"--port {port}: another program listens on {host} port {port} already; stop it, or choose "
            "another port (0 takes a free one)"
        )
    if problem.errno == errno.EACCES:
        return f"--port {port}: this user may not listen on it; choose one above 1023"
    return f"--host {host}, --port {port}: cannot listen there ({problem.strerror})"


def url_of(listener: socket.socket) -> str:
    """The URL under which `listener` is reached from this machine."""
    host, port = listener.getsockname()[:2]
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
