"""Slow, broken and overlong: what passes is what came, and what is kept says what was wrong with it."""

from __future__ import annotations

import asyncio
import http.client
import json
import re
import socket
import time

import pytest

from tests.blame.proxying import Asked, post, speak, wait_for, watched

CHAT = "/v1/chat/completions"
BODY = b'{"model": "m", "messages": [{"role": "user", "content": "hi"}]}'


async def echo(asked: Asked, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(asked.body), asked.body))


@pytest.mark.parametrize("body", [b"{", b"\xff\xfe\x00", b"a=1&b=2", b"[" * 5000, b'"x"', b"null"])
def test_bodies_that_are_no_json_pass_and_are_noted(body: bytes) -> None:
    with watched(echo) as seen:
        assert speak(seen.port, post(CHAT, body, host="localhost"), until=body).endswith(body)
        exchange = seen.exchange()
        if body in (b'"x"', b"null"):
            assert exchange.notes == ()
        else:
            assert exchange.body is None
            assert exchange.notes[0].startswith("the request's body is not JSON")


@pytest.mark.parametrize(
    ("events", "error"),
    [
        ([b"data: {broken\n\n", b'data: {"choices": 7}\n\n'], "1 events of the stream were no JSON object"),
        ([b"data: \xff\xfe\n\n"], "1 events of the stream were no JSON object"),
        ([b'data: {"choices":[{"index":0,"delta":{"content":"a"}}]}\n\n'], "without its end mark"),
        ([b"no event at all"], "without its end mark"),
        ([b"data: [1]\n\n", b"data: [DONE]\n\n"], "1 events of the stream were no JSON object"),
    ],
)
def test_broken_streams_pass_as_they_are_and_the_record_says_so(events: list[bytes], error: str) -> None:
    async def answer(asked: Asked, writer: asyncio.StreamWriter) -> None:
        writer.write(
            b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
        )
        for event in events:
            writer.write(b"%x\r\n%s\r\n" % (len(event), event))
        writer.write(b"0\r\n\r\n")

    with watched(answer) as seen:
        got = speak(seen.port, post(CHAT, BODY, host="localhost"), until=b"\r\n0\r\n\r\n")
        assert all(event in got for event in events)
        assert error in (seen.exchange().error or "")


def test_a_server_that_takes_its_time_is_waited_for() -> None:
    async def answer(asked: Asked, writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(1.2)
        await echo(asked, writer)

    with watched(answer) as seen:
        client = http.client.HTTPConnection("127.0.0.1", seen.port, timeout=10)
        client.request("POST", CHAT, BODY)
        assert client.getresponse().read() == BODY
        client.close()
        assert seen.exchange().error is None
        assert (seen.exchange().timing.total or 0) >= 1.1


def test_a_client_that_does_not_read_holds_the_server_back() -> None:
    """Else a reply without end would lie in the proxy's memory."""
    sent = 0

    async def answer(asked: Asked, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        size = 100 << 20
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % size)
        piece = bytes(1 << 18)
        while sent < size:
            writer.write(piece)
            sent += len(piece)
            await writer.drain()

    with watched(answer) as seen, socket.create_connection(("127.0.0.1", seen.port), timeout=10) as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)
        client.sendall(post(CHAT, BODY, host="localhost"))
        wait_for(lambda: sent > 0)
        before = -1
        while before != sent:
            before = sent
            time.sleep(0.3)
        assert sent < 40 << 20
        got = 0
        while piece := client.recv(1 << 20):
            got += len(piece)
            if got > 100 << 20:
                break
        assert sent == 100 << 20


@pytest.mark.parametrize("nbytes", [65_000, 65_536, 131_072, 300_001])
def test_large_requests_sent_ahead_are_kept_apart(nbytes: int) -> None:
    """The end of one body and the next head come in one piece."""
    bodies = [json.dumps({"n": n, "filler": "x" * (nbytes + n)}).encode() for n in range(4)]
    with watched(echo) as seen:
        ahead = b"".join(post(CHAT, body, host="localhost") for body in bodies)
        got = speak(seen.port, ahead, until=bodies[-1])
        assert re.findall(rb"\{.n.: (.),", got) == [b"0", b"1", b"2", b"3"]
        assert [asked.body for asked in seen.fake.asked] == bodies
        wait_for(lambda: len(seen.passed) == 4)
        assert [seen.exchange(n, count=4).body["n"] for n in range(4)] == [0, 1, 2, 3]
