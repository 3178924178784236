"""What the proxy says itself, where there is nothing to pass on."""

from __future__ import annotations

import json
from http import HTTPStatus

from headstart.config import is_loopback


def answer(status: int, message: str, kind: str, *, close: bool) -> bytes:
    """A whole reply in the form that clients of all dialects read errors from."""
    body = json.dumps({"type": "error", "error": {"type": kind, "message": message}}).encode()
    lines = [
        f"HTTP/1.1 {status} {HTTPStatus(status).phrase}",
        "Content-Type: application/json",
        f"Content-Length: {len(body)}",
        *(["Connection: close"] if close else []),
    ]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def host_is_local(host: str) -> bool:
    """Whether a Host header names this machine from within."""
    name = host.rsplit(":", 1)[0] if host.rpartition(":")[2].isdigit() and not host.endswith("]") else host
    name = name.lower().removesuffix(".")
    return is_loopback(name) or name.endswith(".localhost")
