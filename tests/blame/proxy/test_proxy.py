"""The proxy on real sockets: every byte as it is, at once, whatever either side does."""

from __future__ import annotations

import asyncio
import gzip
import http.client
import itertools
import json
import re
import socket
import time

import pytest

from tests.blame.proxying import Asked, Handler, post, speak, wait_for, watched

CHAT = "/v1/chat/completions"
BODY = b'{"model": "m",  "messages":[{"role":"user","content":"h\\u00e9llo"}] , "temperature":1e0}'
EVENT = b'data: {"choices":[{"index":0,"delta":{"content":"hi"}}]}\n\n'


def whole(body: bytes, *headers: str, status: str = "200 OK") -> Handler:
    """Answers with a body of known length."""
    lines = [f"HTTP/1.1 {status}", *headers, f"Content-Length: {len(body)}"]

    async def answer(asked: Asked, writer: asyncio.StreamWriter) -> None:
        writer.write("\r\n".join(lines).encode() + b"\r\n\r\n" + body)
        await writer.drain()

    return answer


def streamed(
    *pieces: bytes, pause_s: float = 0.0, end: bool = True, kind: str = "text/event-stream"
) -> Handler:
    """Answers with chunks, some time apart."""

    async def answer(asked: Asked, writer: asyncio.StreamWriter) -> None:
        writer.write(
            f"HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\ntransfer-Encoding: chunked\r\n\r\n".encode()
        )
        for piece in pieces:
            writer.write(b"%x\r\n%s\r\n" % (len(piece), piece))
            await writer.drain()
            await asyncio.sleep(pause_s)
        if end:
            writer.write(b"0\r\n\r\n")
        else:
            writer.transport.abort()

    return answer


def direct_and_through(
    handler: Handler, request: bytes, until: bytes | None
) -> tuple[list[bytes], list[bytes]]:
    """What the server and the client got, without the proxy and with it."""
    with watched(handler) as seen:
        behind = int(seen.fake.url.rsplit(":", 1)[1])
        replies = []
        for port in (behind, seen.port):
            own = request.replace(b"HOST", f"127.0.0.1:{port}".encode())
            replies.append(speak(port, own, until=until))
        wait_for(lambda: len(seen.fake.asked) == 2)
        return [asked.raw for asked in seen.fake.asked], replies


@pytest.mark.parametrize(
    "headers",
    [
        (),
        ("X-ApI-Key: sk-1", "accept-ENCODING: gzip", "X-Empty: ", "X-Twice: a", "X-Twice: b"),
        ("Connection: keep-alive", "User-Agent: spaced (and  more)", "Cookie: a=b; c=d"),
    ],
)
def test_request_and_reply_are_the_same_bytes_as_without_it(headers: tuple[str, ...]) -> None:
    sent = post(f"{CHAT}?a=1&b=%20x", BODY, *headers, host="HOST")
    handler = whole(
        b'{"x": 1}', "Content-Type: application/json", "X-oDD: yes", "Set-Cookie: a", "Set-Cookie: b"
    )
    requests, replies = direct_and_through(handler, sent, b'{"x": 1}')
    assert requests[0] == requests[1]
    assert replies[0] == replies[1]


def test_a_stream_is_the_same_bytes_as_without_it() -> None:
    pieces = (EVENT, b": still here\n\n", EVENT[:7], EVENT[7:], b"data: [DONE]\n\n")
    sent = post(CHAT, BODY, host="HOST")
    requests, replies = direct_and_through(streamed(*pieces, pause_s=0.03), sent, b"0\r\n\r\n")
    assert requests[0] == requests[1]
    assert replies[0] == replies[1]


def test_a_chunked_request_and_its_trailers_are_the_same_bytes() -> None:
    sent = b"POST /v1/responses HTTP/1.1\r\nHost: HOST\r\ntransfer-encoding: chunked\r\n\r\n"
    sent += b'5\r\n{"a":\r\n2\r\n1}\r\n0\r\n\r\n'
    requests, replies = direct_and_through(whole(b"{}"), sent, b"{}")
    assert requests[0] == requests[1]
    assert replies[0] == replies[1]


def test_trailers_of_a_reply_are_passed_on() -> None:
    async def answer(asked: Asked, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\nX-Sum: 7\r\n\r\n")

    with watched(answer) as seen:
        assert speak(seen.port, post(CHAT, BODY, host="localhost"), until=b"7\r\n\r\n").endswith(
            b"2\r\nhi\r\n0\r\nX-Sum: 7\r\n\r\n"
        )


def test_pieces_are_passed_on_as_they_come() -> None:
    with watched(streamed(EVENT, EVENT, EVENT, pause_s=0.2)) as seen:
        client = http.client.HTTPConnection("127.0.0.1", seen.port, timeout=10)
        client.request("POST", CHAT, BODY)
        reply = client.getresponse()
        times = []
        for _ in range(3):
            assert reply.read1() == EVENT
            times.append(time.perf_counter())
        assert min(later - earlier for earlier, later in itertools.pairwise(times)) > 0.1
        client.close()


@pytest.mark.parametrize("status", ["400 Bad Request", "429 Slow  Down", "500 Oh", "503 Busy"])
def test_errors_are_passed_on_as_they_are_and_recorded(status: str) -> None:
    body = b'{"error": {"message": "the prompt is too long", "code": 7}}'
    with watched(whole(body, "retry-after: 3", status=status)) as seen:
        reply = speak(seen.port, post(CHAT, BODY, host="127.0.0.1"), until=body)
        assert reply.startswith(f"HTTP/1.1 {status}\r\nretry-after: 3\r\n".encode())
        exchange = seen.exchange()
        assert exchange.status == int(status[:3])
        assert exchange.error == f"status {status[:3]}: the prompt is too long"


def test_a_server_that_is_down_is_502_with_the_reason_and_recorded() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
    with watched(whole(b"{}"), upstream=f"http://127.0.0.1:{port}") as seen:
        reply = speak(seen.port, post(CHAT, BODY, host="127.0.0.1"))
        head, _, body = reply.partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 502 Bad Gateway")
        message = json.loads(body)["error"]["message"]
        assert message.startswith(
            f"headstart watch: nothing answers at http://127.0.0.1:{port} (connection refused)"
        )
        exchange = seen.exchange()
        assert (exchange.status, exchange.error) == (None, message.removeprefix("headstart watch: "))


@pytest.mark.parametrize(
    ("upstream", "reason"), [("http://a..b", "is not the name of a host"), ("http://[::1]:9", "[::1]:9 (")]
)
def test_a_server_that_cannot_be_there_is_502(upstream: str, reason: str) -> None:
    with watched(whole(b"{}"), upstream=upstream) as seen:
        assert reason.encode() in speak(seen.port, post(CHAT, BODY, host="localhost"))
        assert reason in (seen.exchange().error or "")


def test_a_server_that_speaks_no_http_is_502() -> None:
    async def answer(asked: Asked, writer: asyncio.StreamWriter) -> None:
        writer.write(b"SSH-2.0-what\r\n\r\n")

    with watched(answer) as seen:
        reply = speak(seen.port, post(CHAT, BODY, host="127.0.0.1"))
        assert b"does not speak HTTP/1.1" in reply
        assert "does not speak HTTP/1.1" in (seen.exchange().error or "")


def test_a_reply_that_breaks_off_breaks_off_for_the_client_too() -> None:
    with watched(streamed(EVENT, pause_s=0.05, end=False)) as seen:
        client = http.client.HTTPConnection("127.0.0.1", seen.port, timeout=10)
        client.request("POST", CHAT, BODY)
        reply = client.getresponse()
        with pytest.raises((http.client.IncompleteRead, ConnectionResetError)):
            reply.read()
        exchange = seen.exchange()
        assert exchange.reply.text == "hi"
        assert "broke off" in (exchange.error or "")


def test_a_client_that_leaves_is_known_to_the_server_at_once() -> None:
    async def never(asked: Asked, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        await asyncio.sleep(60)

    with watched(never) as seen:
        client = socket.create_connection(("127.0.0.1", seen.port))
        client.sendall(post(CHAT, BODY, host="127.0.0.1"))
        wait_for(lambda: bool(seen.fake.asked))
        left = time.perf_counter()
        client.close()
        assert seen.fake.hung_up.wait(5)
        assert time.perf_counter() - left < 1
        assert "the client went away" in (seen.exchange().error or "")


def test_a_client_that_hangs_up_at_the_end_mark_has_its_reply() -> None:
    """Many close the connection there, before the last chunk of HTTP is through."""

    async def open_end(asked: Asked, writer: asyncio.StreamWriter) -> None:
        writer.write(
            b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
        )
        for event in (EVENT, b"data: [DONE]\n\n"):
            writer.write(b"%x\r\n%s\r\n" % (len(event), event))
        await asyncio.sleep(60)

    with watched(open_end) as seen:
        speak(seen.port, post(CHAT, BODY, host="127.0.0.1"), until=b"[DONE]\n\n")
        exchange = seen.exchange()
        assert exchange.reply.text == "hi"
        assert exchange.error is None


def test_one_connection_takes_many_requests() -> None:
    with watched(whole(b"{}")) as seen:
        client = http.client.HTTPConnection("127.0.0.1", seen.port, timeout=10)
        for _ in range(5):
            client.request("POST", CHAT, BODY)
            assert client.getresponse().read() == b"{}"
        client.request("HEAD", "/api/hello")
        assert client.getresponse().read() == b""
        client.request("GET", "/v1/models")
        assert client.getresponse().read() == b"{}"
        client.close()
        assert seen.fake.connections == 2  # the one after HEAD is new
        assert len(seen.passed) == 5


def test_no_piece_waits_for_the_one_before_to_be_acknowledged() -> None:
    """Nagle's algorithm would hold each small piece back for 40 ms."""
    with watched(whole(b"{}")) as seen:
        client = http.client.HTTPConnection("127.0.0.1", seen.port, timeout=10)
        began = time.perf_counter()
        for _ in range(30):
            client.request("POST", CHAT, BODY)
            client.getresponse().read()
        assert time.perf_counter() - began < 0.6
        client.close()


def test_requests_sent_ahead_are_answered_in_order() -> None:
    async def echo(asked: Asked, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(asked.body), asked.body))

    with watched(echo) as seen:
        ahead = b"".join(post(CHAT, b'{"n": %d}' % n, host="localhost") for n in range(4))
        got = speak(seen.port, ahead, until=b'{"n": 3}')
        assert re.findall(rb"\{.n.: (.)\}", got) == [b"0", b"1", b"2", b"3"]


def test_an_offer_of_another_protocol_is_not_taken_up_and_its_body_not_lost() -> None:
    offer = ("Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAMAAABkAAQAAP__")
    with watched(whole(b"{}")) as seen:
        for body in (BODY, b""):
            assert speak(seen.port, post(CHAT, body, *offer, host="localhost"), until=b"{}").endswith(b"{}")
        assert [asked.body for asked in seen.fake.asked] == [BODY, b""]
        assert b"pgrade" not in seen.fake.asked[0].head


def test_a_client_that_waits_for_leave_to_send_gets_it_from_the_server() -> None:
    async def answer(asked: Asked, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")

    with watched(answer) as seen, socket.create_connection(("127.0.0.1", seen.port), timeout=5) as line:
        head, _, body = post(CHAT, BODY, "Expect: 100-continue", host="localhost").partition(b"\r\n\r\n")
        line.sendall(head + b"\r\n\r\n")
        wait_for(lambda: seen.fake.connections == 1)
        line.sendall(body)
        assert line.makefile("rb").read(40).endswith(b"\r\n\r\n{}")
        assert b"Expect: 100-continue" in seen.fake.asked[0].head


def test_an_old_client_gets_a_stream_without_chunks() -> None:
    with watched(streamed(EVENT, b"data: [DONE]\n\n")) as seen:
        sent = post(CHAT, BODY, host="localhost").replace(b"HTTP/1.1", b"HTTP/1.0")
        assert speak(seen.port, sent).endswith(b"\r\n\r\n" + EVENT + b"data: [DONE]\n\n")


def test_a_hundred_megabytes_go_through_and_the_record_says_what_was_cut() -> None:
    size = 100 << 20
    got = 0

    async def answer(asked: Asked, writer: asyncio.StreamWriter) -> None:
        nonlocal got
        got = len(asked.body)
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")

    with watched(answer, limit=1 << 20) as seen:
        assert speak(seen.port, post(CHAT, bytes(size), host="localhost"), until=b"{}").endswith(b"{}")
        assert got == size
        exchange = seen.exchange()
        assert exchange.body is None
        assert exchange.notes == (
            "the request's body has 104,857,600 bytes; it is not kept, as it is over 1,048,576",
        )
        assert sum(map(len, seen.passed[0].request)) <= 1 << 20


def test_compressed_bodies_pass_as_they_are_and_are_read_where_they_can_be() -> None:
    body = gzip.compress(EVENT + b"data: [DONE]\n\n")

    async def answer(asked: Asked, writer: asyncio.StreamWriter) -> None:
        kind = b"br" if b"X-Br" in asked.head else b"gzip"
        head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Encoding: %s\r\n" % kind
        writer.write(head + b"Content-Length: %d\r\n\r\n" % len(body) + body)

    sent = gzip.compress(BODY)
    with watched(answer) as seen:
        for header in ("X-Gzip: 1", "X-Br: 1"):
            request = post(CHAT, sent, "Content-Encoding: gzip", header, host="localhost")
            assert speak(seen.port, request, until=body).endswith(body)
        first, second = seen.exchange(0, count=2), seen.exchange(1, count=2)
        assert (first.reply.text, first.error) == ("hi", None)
        assert first.body == json.loads(BODY)
        assert seen.fake.asked[0].body == sent
        assert "compressed as 'br'" in (second.error or "")


def test_names_of_other_pages_are_not_let_in() -> None:
    with watched(whole(b"{}")) as seen:
        for host, status in [
            ("evil.example:80", 403),
            ("LOCALHOST:1", 200),
            ("[::1]:9", 200),
            ("127.0.0.1", 200),
        ]:
            reply = speak(seen.port, post(CHAT, BODY, host=host), until=b"}")
            assert int(reply.split()[1]) == status, host
    with watched(whole(b"{}"), any_host=True) as seen:
        assert b" 200 " in speak(seen.port, post(CHAT, BODY, host="my.box"), until=b"}")


@pytest.mark.parametrize("junk", [b"\x16\x03\x01\x02\x00", b"GET\r\n\r\n", b"POST / HTTP/9.9\r\n\r\n"])
def test_what_is_no_http_is_400(junk: bytes) -> None:
    with watched(whole(b"{}")) as seen:
        assert speak(seen.port, junk).startswith(b"HTTP/1.1 400 Bad Request")
        assert seen.fake.connections == 0


def test_a_reply_before_the_whole_request_reaches_the_client() -> None:
    async def early(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 413 Too Large\r\nContent-Length: 2\r\nConnection: close\r\n\r\nno")
        await writer.drain()
        await asyncio.sleep(0.2)
        writer.close()

    with watched(whole(b""), serve=early) as seen:
        sent = post(CHAT, b"x" * 1000, host="localhost")
        assert speak(seen.port, sent[:-900]).startswith(b"HTTP/1.1 413 Too Large")
        assert seen.exchange().status == 413


def test_two_hundred_streams_at_once() -> None:
    pieces = [EVENT] * 5 + [b"data: [DONE]\n\n"]
    with watched(streamed(*pieces, pause_s=0.05)) as seen:

        async def one() -> bytes:
            reader, writer = await asyncio.open_connection("127.0.0.1", seen.port)
            writer.write(post(CHAT, BODY, "Connection: close", host="localhost"))
            got = await reader.readuntil(b"0\r\n\r\n")
            writer.close()
            return got

        async def everybody() -> list[bytes]:
            return await asyncio.gather(*(one() for _ in range(200)))

        replies = asyncio.run(everybody())
        assert {reply.count(EVENT) for reply in replies} == {5}
        wait_for(lambda: len(seen.passed) == 200)
        assert all(passing.finished for passing in seen.passed)
