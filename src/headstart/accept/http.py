"""Small requests of the harness's own: metrics, facts, token ids."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import httpx

from headstart.accept.servers import Answer

TIMEOUT_S = 20.0


def server_root(url: str) -> str:
    """The root of a server: `url` without a trailing /v1, user, password, query and fragment.

    Raises ValueError for what is no http URL.
    """
    parts = urlsplit(url if "://" in url else f"http://{url}")
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(f"expected a URL such as http://127.0.0.1:8000/v1, found {url!r}")
    path = parts.path.rstrip("/").removesuffix("/v1")
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    place = f"{host}:{parts.port}" if parts.port else host
    return urlunsplit((parts.scheme, place, path, "", ""))


def key_headers(api_key: str | None) -> dict[str, str]:
    return {"Authorization": f"Bearer {api_key}"} if api_key else {}


class SmallRequests:
    """The Http of servers/. One client, cookies kept; nothing raises."""

    def __init__(self, root: str, api_key: str | None, timeout_s: float = TIMEOUT_S) -> None:
        self.root, self.api_key = root, api_key
        self._client = httpx.Client(
            headers=key_headers(api_key),
            timeout=timeout_s,
            limits=httpx.Limits(max_keepalive_connections=0),
            trust_env=False,
        )

    def get(self, path: str, headers: Mapping[str, str] | None = None) -> Answer:
        return self._send("GET", path, None, headers)

    def post(self, path: str, body: Any, headers: Mapping[str, str] | None = None) -> Answer:
        return self._send("POST", path, body, headers)

    def _send(self, method: str, path: str, body: Any, headers: Mapping[str, str] | None) -> Answer:
        try:
            reply = self._client.request(method, self.root + path, json=body, headers=dict(headers or {}))
        except (httpx.HTTPError, httpx.InvalidURL, ValueError):
            return Answer(0)
        try:
            parsed = json.loads(reply.content)
        except ValueError:
            parsed = None
        return Answer(reply.status_code, reply.text, parsed, dict(reply.headers))

    def close(self) -> None:
        self._client.close()
