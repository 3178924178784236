"""Who may talk to the server: Host and Origin against DNS rebinding, API keys, body size.

The decisions are pure functions of a policy and of header values; `Guard` puts them in front of an
application as plain ASGI middleware, so that streamed replies pass through untouched.

A page on the web can make a browser send requests to 127.0.0.1. Two headers give it away: after DNS
rebinding the Host header carries the attacker's name, and a cross-origin request carries an Origin.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from starlette.responses import JSONResponse

from headstart.api.error_shapes import error_for
from headstart.config import Settings, is_loopback
from headstart.errors import RequestError

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[MutableMapping[str, Any], Receive, Send], Awaitable[None]]

PUBLIC_PATHS = frozenset({"/health"})
"""Answered without a key, so that whoever watches the process need not hold one."""

CORS_METHODS = "GET, POST, DELETE, OPTIONS"
CORS_EXPOSED = "retry-after, x-request-id"
CORS_MAX_AGE_S = 600


@dataclass(frozen=True)
class AccessPolicy:
    """What the decisions need to know. Holds digests of keys, never keys."""

    key_digests: tuple[bytes, ...] = ()
    hosts: frozenset[str] = frozenset()
    """Names and addresses, besides loopback ones, that a Host header may carry; lower case."""
    any_address: bool = False
    """Whether the server listens on all addresses, so that a Host may be any address (not name)."""
    origins: frozenset[str] = frozenset()
    share_cache: bool = False
    max_body_bytes: int = 64 * 2**20


@dataclass(frozen=True)
class Refusal:
    """Why a request is not served."""

    status: int
    message: str
    code: str


def policy_of(settings: Settings) -> AccessPolicy:
    """The policy that `settings` ask for."""
    host = settings.host.strip("[]").lower()
    return AccessPolicy(
        key_digests=tuple(digest(key) for key in settings.api_keys),
        hosts=frozenset({host, *(name.lower() for name in settings.allowed_hosts)}),
        any_address=host in ("0.0.0.0", "::"),
        origins=frozenset(origin.rstrip("/").lower() for origin in settings.allow_origins),
        share_cache=settings.share_cache,
        max_body_bytes=settings.max_request_bytes,
    )


def digest(key: str) -> bytes:
    """SHA-256 of an API key: what is compared and kept in its place."""
    return hashlib.sha256(key.encode("utf-8", "surrogateescape")).digest()


def host_name(header: str) -> str:
    """The name or address in a Host header, without its port, lower case; "" where there is none."""
    if set(header) & set("@/?# ,"):
        return ""
    try:
        parts = urlsplit(f"//{header}")
        _ = parts.port  # raises where it is not a port
    except ValueError:
        return ""
    return (parts.hostname or "").lower().removesuffix(".")


def host_allowed(policy: AccessPolicy, header: str | None) -> bool:
    """Whether a Host header names this server by a name it is meant to be called."""
    name = host_name(header or "")
    if not name:
        return False
    if is_loopback(name) or name in policy.hosts or "*" in policy.hosts:
        return True
    return policy.any_address and _is_address(name)


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def origin_allowed(policy: AccessPolicy, origin: str | None, host: str | None) -> bool:
    """Whether a request with this Origin may be served: none, the server's own, or an allowed one."""
    if origin is None:
        return True
    origin = origin.rstrip("/").lower()
    own = (host or "").lower()
    if own and origin in (f"http://{own}", f"https://{own}"):
        return True
    return "*" in policy.origins or origin in policy.origins


def tenant_of(policy: AccessPolicy, presented: Iterable[str]) -> str | None:
    """Whose cache a request uses, by the keys it presented; None where no key fits.

    Without keys there is one tenant, "". Compares every digest with every key, in constant time.
    """
    if not policy.key_digests:
        return ""
    found = None
    for key in presented:
        theirs = digest(key)
        for ours in policy.key_digests:
            if hmac.compare_digest(theirs, ours):
                found = "" if policy.share_cache else ours.hex()
    return found


def presented_keys(headers: Iterable[tuple[bytes, bytes]]) -> list[str]:
    """Keys in `Authorization: Bearer` and `x-api-key` headers."""
    keys = []
    for name, value in headers:
        text = value.decode("latin-1").strip()
        if name == b"x-api-key":
            keys.append(text)
        elif name == b"authorization" and text[:7].lower() == "bearer ":
            keys.append(text[7:].strip())
    return keys


def refusal(policy: AccessPolicy, host: str | None, origin: str | None) -> Refusal | None:
    """Why a request with these headers is not served at all; None where it may be."""
    if not host_allowed(policy, host):
        return Refusal(
            403,
            f"this server is not called {host_name(host or '') or 'that'}: use its address, or start it with "
            "--allowed-host NAME",
            "host_not_allowed",
        )
    if not origin_allowed(policy, origin, host):
        return Refusal(
            403,
            f"pages of {origin} may not call this server: start it with --allow-origin ORIGIN to let them",
            "origin_not_allowed",
        )
    return None


class Guard:
    """Serves an ASGI application only to those the policy lets in.

    The tenant is left in `scope["state"]["tenant"]`, which is `request.state.tenant`.
    """

    def __init__(self, app: App, policy: AccessPolicy) -> None:
        self._app = app
        self._policy = policy

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1008, "reason": "no websockets here"})
            return
        host, origin = _header(scope, b"host"), _header(scope, b"origin")
        refused = refusal(self._policy, host, origin)
        if refused is None and origin is not None:
            send = _with_headers(send, _cors_headers(origin))
        if refused is None and _is_preflight(scope, origin):
            await _answer_preflight(scope, send)
            return
        if refused is None:
            refused = self._admit(scope)
        if refused is not None:
            await _refuse(refused, scope, receive, send)
            return
        await self._serve(scope, receive, send)

    def _admit(self, scope: MutableMapping[str, Any]) -> Refusal | None:
        tenant = tenant_of(self._policy, presented_keys(scope["headers"]))
        if tenant is None and scope["path"] not in PUBLIC_PATHS:
            return Refusal(
                401,
                "a valid API key is needed: send it as 'Authorization: Bearer KEY' or 'x-api-key: KEY'",
                "invalid_api_key",
            )
        scope.setdefault("state", {})["tenant"] = tenant
        length = _header(scope, b"content-length") or "0"
        if length.isdigit() and int(length) > self._policy.max_body_bytes:
            return self._too_large(f"{length} bytes")
        return None

    def _too_large(self, found: str) -> Refusal:
        return Refusal(
            413,
            f"the request body has {found} and this server reads at most {self._policy.max_body_bytes} bytes "
            "(--max-request-size)",
            "request_too_large",
        )

    async def _serve(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        """Passes the request on and counts its body; a body that grows too large ends it with 413."""
        read_bytes = 0
        over = started = False

        async def counted() -> Message:
            nonlocal read_bytes, over
            message = await receive()
            read_bytes += len(message.get("body", b""))
            if message["type"] == "http.request" and read_bytes > self._policy.max_body_bytes:
                over = True
                raise RequestError("the request body is too large", status=413)
            return message

        async def guarded(message: Message) -> None:
            nonlocal started
            if over and not started:
                return
            started = True
            await send(message)

        try:
            await self._app(scope, counted, guarded)
        except RequestError:
            if not over:
                raise
        if over and not started:
            await _refuse(self._too_large("more bytes"), scope, receive, send)


def _header(scope: MutableMapping[str, Any], name: bytes) -> str | None:
    found = [value for key, value in scope["headers"] if key == name]
    return b",".join(found).decode("latin-1") if found else None


def _is_preflight(scope: MutableMapping[str, Any], origin: str | None) -> bool:
    asks = _header(scope, b"access-control-request-method")
    return scope["method"] == "OPTIONS" and origin is not None and asks is not None


def _cors_headers(origin: str) -> list[tuple[bytes, bytes]]:
    return [
        (b"access-control-allow-origin", origin.encode("latin-1")),
        (b"access-control-expose-headers", CORS_EXPOSED.encode()),
        (b"vary", b"Origin"),
    ]


def _with_headers(send: Send, headers: list[tuple[bytes, bytes]]) -> Send:
    async def with_headers(message: Message) -> None:
        if message["type"] == "http.response.start":
            message = {**message, "headers": [*message.get("headers", []), *headers]}
        await send(message)

    return with_headers


async def _answer_preflight(scope: MutableMapping[str, Any], send: Send) -> None:
    headers = [
        (b"access-control-allow-methods", CORS_METHODS.encode()),
        (b"access-control-max-age", str(CORS_MAX_AGE_S).encode()),
    ]
    asked = _header(scope, b"access-control-request-headers")
    if asked:
        headers.append((b"access-control-allow-headers", asked.encode("latin-1")))
    if _header(scope, b"access-control-request-private-network") == "true":
        headers.append((b"access-control-allow-private-network", b"true"))
    await send({"type": "http.response.start", "status": 204, "headers": headers})
    await send({"type": "http.response.body", "body": b""})


async def _refuse(refused: Refusal, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
    headers = {"WWW-Authenticate": "Bearer"} if refused.status == 401 else {}
    body = error_for(scope["path"], refused.message, status=refused.status, code=refused.code)
    await JSONResponse(body, refused.status, headers)(scope, receive, send)
