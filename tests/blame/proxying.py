"""A proxy and a fake server behind it, on real sockets, in a thread of their own."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

from headstart.blame.exchange import Exchange
from headstart.blame.proxy import Passing, Proxy, Service
from headstart.blame.proxy.heads import upstream_of
from headstart.blame.proxy.taking import exchange_of
from headstart.cli.listen import open_socket, url_of

T = TypeVar("T")
Handler = Callable[["Asked", asyncio.StreamWriter], Awaitable[None]]


class Loop:
    """An event loop in a thread."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(30)

    def close(self) -> None:
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(10)
        self.loop.close()


@dataclass
class Asked:
    """A request as it came in: every byte of it."""

    head: bytes
    body: bytes

    @property
    def raw(self) -> bytes:
        return self.head + self.body


@dataclass
class Fake:
    """The server behind. `handler` answers; a connection goes on unless the handler closes it."""

    handler: Handler
    asked: list[Asked] = field(default_factory=list)
    hung_up: threading.Event = field(default_factory=threading.Event)
    connections: int = 0
    url: str = ""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            while not writer.is_closing():
                asked = await read_request(reader)
                self.asked.append(asked)
                answering = asyncio.ensure_future(self.handler(asked, writer))
                gone = asyncio.ensure_future(self._watch(reader, writer))
                await asyncio.wait((answering, gone), return_when=asyncio.FIRST_COMPLETED)
                if not answering.done():
                    self.hung_up.set()
                    answering.cancel()
                gone.cancel()
                if answering.done() and not answering.cancelled():
                    answering.result()
        writer.close()

    async def _watch(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while not reader.at_eof() and reader.exception() is None and not writer.is_closing():
            await asyncio.sleep(0.01)


async def read_request(reader: asyncio.StreamReader) -> Asked:
    head = await reader.readuntil(b"\r\n\r\n")
    lower = head.lower()
    if b"transfer-encoding: chunked" in lower:
        body = b""
        while not body.endswith(b"0\r\n\r\n"):
            body += await reader.readuntil(b"\r\n")
        return Asked(head, body)
    length = 0
    if b"content-length:" in lower:
        length = int(lower.split(b"content-length:")[1].split(b"\r\n")[0])
    return Asked(head, await reader.readexactly(length))


@dataclass
class Watched:
    """A proxy that runs. `passed`: what it told of."""

    url: str
    fake: Fake
    passed: list[Passing]

    def exchange(self, place: int = -1, *, count: int = 1) -> Exchange:
        """What passed, once `count` exchanges have."""
        wait_for(lambda: len(self.passed) >= count)
        return exchange_of(self.passed[place], 1)

    @property
    def port(self) -> int:
        return int(self.url.rsplit(":", 1)[1])


@contextmanager
def watched(handler: Handler, *, serve: Any = None, **service: Any) -> Iterator[Watched]:
    """A proxy before a server that answers with `handler`, or does with a connection what `serve` does."""
    loop = Loop()
    fake = Fake(handler)
    passed: list[Passing] = []

    async def start() -> tuple[asyncio.Server, Proxy, asyncio.Server, str]:
        behind = open_socket("127.0.0.1", 0)
        fake.url = url_of(behind)
        server = await asyncio.start_server(serve or fake.serve, sock=behind, limit=1 << 20)
        front = open_socket("127.0.0.1", 0)
        upstream = upstream_of(service.pop("upstream", fake.url))
        proxy = Proxy(Service(upstream, passed.append, **service))
        return server, proxy, await proxy.start(front), url_of(front)

    async def stop(server: asyncio.Server, proxy: Proxy, listening: asyncio.Server) -> None:
        listening.close()
        await proxy.stop()
        server.close()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    server, proxy, listening, url = loop.run(start())
    try:
        yield Watched(url, fake, passed)
    finally:
        loop.run(stop(server, proxy, listening))
        loop.close()


def wait_for(condition: Callable[[], bool], seconds: float = 10) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.005)


def speak(port: int, sent: bytes, *, until: bytes | None = None) -> bytes:
    """Sends bytes to a port, and answers with all that comes back until `until`, or the end."""
    with socket.create_connection(("127.0.0.1", port), timeout=10) as line:
        line.sendall(sent)
        got = b""
        while until is None or until not in got:
            piece = line.recv(1 << 16)
            if not piece:
                break
            got += piece
        return got


def post(path: str, body: bytes, *headers: str, host: str = "x") -> bytes:
    """A request as bytes."""
    lines = [f"POST {path} HTTP/1.1", f"Host: {host}", *headers, f"Content-Length: {len(body)}"]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body
