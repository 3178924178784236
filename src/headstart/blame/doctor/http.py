"""Small requests to a server on this machine: loopback only, no proxies, short timeouts, bounded replies."""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

MAX_BYTES = 4 << 20
TIMEOUT_S = 0.5
PATIENCE_S = 3.0
"""For one port, whatever it is asked."""


@dataclass(frozen=True)
class Reply:
    """`status` 0: none came. `body`: parsed JSON, else None."""

    status: int = 0
    text: str = ""
    body: Any = None
    headers: Mapping[str, str] = field(default_factory=dict)

    def get(self, *path: str | int) -> Any:
        """The value at `path` in the body; None where there is none."""
        value = self.body
        for step in path:
            try:
                value = value[step]
            except (KeyError, IndexError, TypeError):
                return None
        return value

    def entries(self, key: str) -> list[Mapping[str, Any]]:
        """The objects of a list in the body."""
        found = self.get(key)
        return [one for one in found if isinstance(one, Mapping)] if isinstance(found, list) else []


class Loopback:
    """Asks one port of 127.0.0.1. Never raises; after PATIENCE_S every reply is empty."""

    def __init__(self, port: int, timeout_s: float = TIMEOUT_S) -> None:
        self.port = port
        self._timeout_s = timeout_s
        self._until = time.monotonic() + PATIENCE_S
        self._known: dict[str, Reply] = {}

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def get(self, path: str) -> Reply:
        """Asked once; a second time the same reply."""
        if path not in self._known:
            self._known[path] = self._ask("GET", path, None)
        return self._known[path]

    def post(self, path: str, body: Mapping[str, Any]) -> Reply:
        return self._ask("POST", path, json.dumps(body).encode())

    def _ask(self, method: str, path: str, body: bytes | None) -> Reply:
        if time.monotonic() > self._until:
            return Reply()
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=self._timeout_s)
        try:
            headers = {"Content-Type": "application/json"} if body else {}
            connection.request(method, path, body, headers)
            answer = connection.getresponse()
            text = answer.read(MAX_BYTES).decode("utf-8", "replace")
            named = {name.lower(): value for name, value in answer.getheaders()}
            return Reply(answer.status, text, _parsed(text), named)
        except (OSError, http.client.HTTPException, ValueError):
            return Reply()
        finally:
            connection.close()


def whole(value: Any) -> int | None:
    """A count; None for what is none."""
    if isinstance(value, str) and value.isdecimal() and len(value) < 19:
        return int(value)
    if isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e18:
        return int(value)
    return None


def text(value: Any) -> str | None:
    """A short text; None for what is none."""
    return value[:200] if isinstance(value, str) and value else None


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None
