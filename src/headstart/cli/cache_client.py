"""A running server as the command line asks it: JSON over HTTP, one plain sentence where that fails."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from http.client import HTTPException
from typing import Any
from urllib.parse import urlsplit

from headstart.config import is_loopback
from headstart.errors import ConfigError, HeadstartError

SHORT_TIMEOUT_S = 10.0
LONG_TIMEOUT_S = 3600.0
"""Reading a long prompt may take its time."""


class ServerUnreachableError(HeadstartError):
    """No server answers there."""


class ServerRefusedError(HeadstartError):
    """The server answered, and not with what was asked for."""


class _StayHere(urllib.request.HTTPRedirectHandler):
    """Follows no redirect: the key is meant for this server alone."""

    def redirect_request(self, *_: Any) -> None:
        return None


class ServerClient:
    """The server at `url`. Raises ConfigError where that is no HTTP address."""

    def __init__(self, url: str, api_key: str | None = None) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ConfigError(f"--url {url}: expected an address such as http://127.0.0.1:8000")
        self.url = url.rstrip("/").removesuffix("/v1")
        self._api_key = api_key
        # What the environment says of proxies is not meant for this machine itself.
        own = [urllib.request.ProxyHandler({})] if is_loopback(parts.hostname) else []
        self._opener = urllib.request.build_opener(_StayHere, *own)

    def get(self, path: str) -> dict[str, Any]:
        """The JSON object at `path`. Raises ServerUnreachableError, ServerRefusedError."""
        return self._ask(path, None, SHORT_TIMEOUT_S)

    def post(self, path: str, body: dict[str, Any], *, timeout_s: float = SHORT_TIMEOUT_S) -> dict[str, Any]:
        """The JSON object that `path` answers `body` with. Raises as `get`."""
        return self._ask(path, json.dumps(body).encode(), timeout_s)

    def _ask(self, path: str, data: bytes | None, timeout_s: float) -> dict[str, Any]:
        headers = {"Content-Type": "application/json", "Accept": "application/json"}
        if self._api_key is not None:
            headers["Authorization"] = f"Bearer {self._api_key}"
        request = urllib.request.Request(self.url + path, data=data, headers=headers)
        try:
            with self._opener.open(request, timeout=timeout_s) as reply:
                answer = json.load(reply)
        except urllib.error.HTTPError as error:
            raise ServerRefusedError(self._refusal(path, error)) from None
        except (OSError, HTTPException) as error:
            why = getattr(error, "reason", None) or error
            raise ServerUnreachableError(
                f"no server answers at {self.url} ({getattr(why, 'strerror', None) or why}); start one with "
                "`headstart serve`, or give its address with --url"
            ) from None
        except ValueError:
            answer = None
        if not isinstance(answer, dict):
            raise ServerRefusedError(f"{self.url} answered {path} with something else than a JSON object")
        return answer

    def _refusal(self, path: str, error: urllib.error.HTTPError) -> str:
        try:
            message = json.load(error)["error"]["message"]
        except (ValueError, KeyError, TypeError, OSError):
            message = f"answered {path} with status {error.code}: is it a headstart server of this version?"
        return f"{self.url}: {message}"
