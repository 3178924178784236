"""Who gets in: hosts, origins, keys and body sizes, as decisions and through the middleware."""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import AsyncIterator, MutableMapping
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.requests import Request
from starlette.responses import JSONResponse, StreamingResponse

from headstart.api.auth import (
    AccessPolicy,
    Guard,
    Receive,
    Send,
    host_allowed,
    host_name,
    origin_allowed,
    policy_of,
    presented_keys,
    tenant_of,
)
from headstart.config import Settings

LOCAL = policy_of(Settings())
KEYED = policy_of(Settings(host="0.0.0.0", api_keys=("sesame-a", "sesame-b")))


@pytest.mark.parametrize(
    "header", ["127.0.0.1:8000", "localhost", "LocalHost:1", "localhost.", "[::1]:8000", "127.0.0.9"]
)
def test_loopback_hosts_are_let_in(header: str) -> None:
    assert host_allowed(LOCAL, header)


@pytest.mark.parametrize(
    "header",
    [
        None,
        "",
        "evil.example",
        "evil.example:8000",
        "localhost.evil.example",
        "127.0.0.1.evil.example",
        "127.0.0.1,evil.example",
        "evil@127.0.0.1",
        "evil.example/127.0.0.1",
        "192.168.1.2",
        "0x7f000001",
        "[::1",
        "127.0.0.1:port:8000",
    ],
)
def test_other_hosts_are_not(header: str | None) -> None:
    assert not host_allowed(LOCAL, header)


def test_the_address_listened_on_and_allowed_names_are_let_in() -> None:
    policy = policy_of(Settings(host="192.168.1.2", api_keys=("k",), allowed_hosts=("Box.lan",)))
    assert host_allowed(policy, "192.168.1.2:8000")
    assert host_allowed(policy, "box.lan")
    assert not host_allowed(policy, "192.168.1.3")
    assert host_allowed(policy_of(Settings(allowed_hosts=("*",))), "anything.example")


def test_listening_everywhere_lets_any_address_in_but_no_name() -> None:
    assert host_allowed(KEYED, "192.168.1.77:8000")
    assert host_allowed(KEYED, "[fe80::1]:8000")
    assert not host_allowed(KEYED, "rebound.example")


@given(st.text(max_size=40))
def test_no_host_header_breaks_the_check(header: str) -> None:
    host_name(header)
    host_allowed(LOCAL, header)


def test_origins() -> None:
    host = "127.0.0.1:8000"
    assert origin_allowed(LOCAL, None, host)
    assert origin_allowed(LOCAL, "http://127.0.0.1:8000", host)
    for foreign in (
        "http://127.0.0.1:3000",
        "http://evil.example",
        "null",
        "",
        "http://127.0.0.1:8000.evil.example",
    ):
        assert not origin_allowed(LOCAL, foreign, host), foreign
    allowing = policy_of(Settings(allow_origins=("http://localhost:3000/",)))
    assert origin_allowed(allowing, "http://localhost:3000", host)
    assert not origin_allowed(allowing, "http://localhost:3001", host)
    assert origin_allowed(policy_of(Settings(allow_origins=("*",))), "http://any.example", host)


def test_each_key_is_a_tenant_of_its_own_unless_the_cache_is_shared() -> None:
    a, b = tenant_of(KEYED, ["sesame-a"]), tenant_of(KEYED, ["sesame-b"])
    assert a and b and a != b
    assert "sesame" not in a + b + repr(KEYED)
    sharing = policy_of(Settings(host="0.0.0.0", api_keys=("sesame-a", "sesame-b"), share_cache=True))
    assert tenant_of(sharing, ["sesame-a"]) == tenant_of(sharing, ["sesame-b"]) == ""


def test_without_keys_everyone_is_one_tenant() -> None:
    assert tenant_of(LOCAL, []) == tenant_of(LOCAL, ["anything"]) == ""


@given(st.lists(st.text(max_size=12), max_size=3))
def test_no_other_key_fits(keys: list[str]) -> None:
    fits = {"sesame-a", "sesame-b"} & set(keys)
    assert (tenant_of(KEYED, keys) is not None) == bool(fits)


def test_every_key_is_compared_in_constant_time(monkeypatch: pytest.MonkeyPatch) -> None:
    compared = []
    real = hmac.compare_digest

    def count(a: bytes, b: bytes) -> bool:
        compared.append((len(a), len(b)))
        return real(a, b)

    monkeypatch.setattr(hmac, "compare_digest", count)
    tenant_of(KEYED, ["sesame-a"])
    tenant_of(KEYED, ["x"])
    assert compared == [(32, 32)] * 4


def test_keys_come_as_bearer_or_x_api_key() -> None:
    headers = [
        (b"authorization", b"Bearer  one "),
        (b"x-api-key", b"two"),
        (b"authorization", b"Basic three"),
    ]
    assert presented_keys(headers) == ["one", "two"]


async def echo(scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
    request = Request(scope, receive)
    body = await request.body()
    await JSONResponse({"tenant": request.state.tenant, "bytes": len(body)})(scope, receive, send)


def call(
    policy: AccessPolicy, method: str = "GET", path: str = "/v1/models", **kwargs: Any
) -> httpx.Response:
    async def go() -> httpx.Response:
        transport = httpx.ASGITransport(app=Guard(echo, policy))  # type: ignore[arg-type]
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8000") as client:
            return await client.request(method, path, **kwargs)

    return asyncio.run(go())


def test_a_local_request_passes() -> None:
    assert call(LOCAL).json() == {"tenant": "", "bytes": 0}


@pytest.mark.parametrize(
    ("headers", "code"),
    [
        ({"Host": "evil.example"}, "host_not_allowed"),
        ({"Origin": "http://evil.example"}, "origin_not_allowed"),
    ],
)
def test_rebinding_and_foreign_pages_get_403_and_no_cors(headers: dict[str, str], code: str) -> None:
    reply = call(LOCAL, headers=headers)
    assert (reply.status_code, reply.json()["error"]["code"]) == (403, code)
    assert "access-control-allow-origin" not in reply.headers


def test_a_missing_or_wrong_key_gets_401() -> None:
    for headers in ({}, {"Authorization": "Bearer wrong"}, {"x-api-key": ""}):
        reply = call(KEYED, headers=headers)
        assert (reply.status_code, reply.headers["www-authenticate"]) == (401, "Bearer")
    assert call(KEYED, headers={"x-api-key": "sesame-a"}).status_code == 200
    assert call(KEYED, headers={"Authorization": "bearer sesame-b"}).status_code == 200


def test_health_needs_no_key_and_knows_it() -> None:
    assert call(KEYED, path="/health").json()["tenant"] is None
    assert call(KEYED, path="/health/").status_code == 401


def test_preflight_is_answered_for_allowed_pages_only() -> None:
    policy = policy_of(Settings(host="0.0.0.0", api_keys=("k",), allow_origins=("http://localhost:3000",)))
    asks = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "authorization"}
    reply = call(policy, "OPTIONS", headers={"Origin": "http://localhost:3000", **asks})
    assert reply.status_code == 204
    assert reply.headers["access-control-allow-origin"] == "http://localhost:3000"
    assert reply.headers["access-control-allow-headers"] == "authorization"
    assert "POST" in reply.headers["access-control-allow-methods"]
    assert call(policy, "OPTIONS", headers={"Origin": "http://evil.example", **asks}).status_code == 403


def test_allowed_pages_can_read_replies_and_refusals() -> None:
    policy = policy_of(Settings(host="0.0.0.0", api_keys=("k",), allow_origins=("http://localhost:3000",)))
    for key, status in (("k", 200), ("x", 401)):
        reply = call(policy, headers={"Origin": "http://localhost:3000", "x-api-key": key})
        assert reply.status_code == status
        assert reply.headers["access-control-allow-origin"] == "http://localhost:3000"
        assert reply.headers["vary"] == "Origin"


def test_a_body_over_the_limit_gets_413_announced_or_not() -> None:
    policy = AccessPolicy(max_body_bytes=100)
    assert call(policy, "POST", content=b"x" * 100).json()["bytes"] == 100
    assert call(policy, "POST", content=b"x" * 101).status_code == 413

    async def chunks() -> AsyncIterator[bytes]:
        for _ in range(11):
            yield b"x" * 10

    reply = call(policy, "POST", content=chunks())
    assert (reply.status_code, reply.json()["error"]["code"]) == (413, "request_too_large")


def test_streamed_replies_pass_through_piece_by_piece() -> None:
    sent: list[Any] = []
    seen_before_next: list[int] = []

    async def pieces() -> AsyncIterator[bytes]:
        for piece in (b"one", b"two", b"three"):
            seen_before_next.append(sum(1 for message in sent if message.get("body")))
            yield piece

    async def go() -> None:
        async def receive() -> MutableMapping[str, Any]:
            await asyncio.sleep(3600)
            raise AssertionError

        async def send(message: MutableMapping[str, Any]) -> None:
            sent.append(message)

        scope = {
            "type": "http",
            "method": "GET",
            "path": "/",
            "headers": [(b"host", b"localhost")],
            "asgi": {},
        }
        await Guard(StreamingResponse(pieces()), LOCAL)(scope, receive, send)

    asyncio.run(go())
    assert seen_before_next == [0, 1, 2]


def test_websockets_are_closed() -> None:
    sent: list[Any] = []

    async def go() -> None:
        async def receive() -> MutableMapping[str, Any]:
            return {"type": "websocket.connect"}

        async def send(message: MutableMapping[str, Any]) -> None:
            sent.append(message)

        await Guard(echo, LOCAL)({"type": "websocket", "headers": []}, receive, send)

    asyncio.run(go())
    assert sent[0]["type"] == "websocket.close"
