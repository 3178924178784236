"""One side of a connection as HTTP/1.1 messages: heads, pieces of bodies and ends, as they come."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Protocol

import httptools

READ_BYTES = 1 << 16
"""A piece is on its way while the next one is read, so large ones make large requests later, not sooner."""

Header = tuple[bytes, bytes]


class Broken(Exception):
    """What came is no HTTP/1.1."""


@dataclass(frozen=True)
class Head:
    """A request's or reply's first lines. `method`, `target`: of a request; `status`, `reason`: of a reply.
    `headers` as they were written, in their order."""

    version: bytes
    headers: tuple[Header, ...]
    keep_alive: bool
    method: bytes = b""
    target: bytes = b""
    status: int = 0
    reason: bytes = b""

    def get(self, name: bytes) -> bytes | None:
        """The first value of a header; `name` in lower case."""
        return next((value for key, value in self.headers if key.lower() == name), None)

    @property
    def chunked(self) -> bool:
        return b"chunked" in (self.get(b"transfer-encoding") or b"").lower()

    @property
    def framed(self) -> bool:
        """Whether the message itself says where its body ends."""
        return self.chunked or self.get(b"content-length") is not None


@dataclass(frozen=True)
class End:
    """The message is complete."""

    trailers: tuple[Header, ...] = ()


Event = Head | bytes | End


class Source(Protocol):
    """Where bytes come from."""

    async def read(self) -> bytes:
        """Some; b"" at the end."""
        ...


class Messages:
    """Reads one side. `next` answers None where the other end closed after a complete message."""

    def __init__(self, source: Source, *, replies: bool = False) -> None:
        self._source = source
        self._replies = replies
        self._events: deque[Event] = deque()
        self._headers: list[Header] = []
        self._first = b""
        self._head: Head | None = None
        self._resumed = False
        # Of the body that is being read: bytes that are still to come, where that is known; and those that
        # came with the last piece.
        self._left = 0
        self._got = 0
        self._parser: httptools.HttpRequestParser | httptools.HttpResponseParser
        self._renew()

    def _renew(self) -> None:
        self._parser = (httptools.HttpResponseParser if self._replies else httptools.HttpRequestParser)(self)

    async def next(self) -> Event | None:
        """The next event. Raises Broken, and ConnectionError where a message ends before its end."""
        while not self._events:
            if not await self.fill():
                if self._head is None:
                    return None
                if self._replies and not self._head.framed:
                    self._head = None
                    return End()
                raise ConnectionResetError("closed in the middle of a message")
        return self._events.popleft()

    async def fill(self) -> bool:
        """Reads what is there, waiting for some. False: the other end has closed."""
        data = await self._source.read()
        if data:
            self._feed(data)
        return bool(data)

    @property
    def waiting(self) -> bool:
        """Whether something was read that nobody asked for yet."""
        return bool(self._events)

    def _feed(self, data: bytes) -> None:
        if self._left:
            data = self._bulk(data)
            if not data:
                return
        self._got = 0
        try:
            self._parser.feed_data(data)
            self._left = self._to_come()
        except httptools.HttpParserUpgrade as upgrade:
            self._go_on(data[upgrade.args[0] :])
        except httptools.HttpParserError as problem:
            if self._head is not None or not self._events:
                raise Broken(str(problem)) from None

    def _to_come(self) -> int:
        """Bytes of a body whose end its head tells, after those that were read with it."""
        if self._head is None or self._head.chunked:
            return 0
        length = self._head.get(b"content-length") or b""
        return max(0, int(length) - self._got) if self._got and length.isdigit() else 0

    def _bulk(self, data: bytes) -> bytes:
        """The rest of a body, which needs no parser. What comes after it."""
        piece, rest = data[: self._left], data[self._left :]
        self._left -= len(piece)
        self._events.append(piece)
        if not self._left:
            self._renew()
            self.on_message_complete()
        return rest

    def _go_on(self, rest: bytes) -> None:
        """Reads on after a request that offers another protocol: the offer is not taken up, and the parser,
        which thinks it was, is replaced."""
        if not self._events or not isinstance(self._events[-1], End):
            raise Broken("a change of protocol that was not asked for")
        end = self._events.pop()
        head = next(event for event in reversed(self._events) if isinstance(event, Head))
        self._renew()
        if head.chunked or (head.get(b"content-length") or b"0").strip() != b"0":
            names = (b"content-length", b"transfer-encoding")
            frame = [b"%s: %s\r\n" % one for one in head.headers if one[0].lower() in names]
            self._resumed = True
            self._parser.feed_data(b"POST / HTTP/1.1\r\n" + b"".join(frame) + b"\r\n")
            self._head = head
        else:
            self._events.append(end)
        if rest:
            self._feed(rest)

    def on_message_begin(self) -> None:
        self._headers, self._first = [], b""

    def on_url(self, url: bytes) -> None:
        self._first += url

    def on_status(self, status: bytes) -> None:
        self._first += status

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers.append((name, value))

    def on_headers_complete(self) -> None:
        parser, headers, self._headers = self._parser, tuple(self._headers), []
        self._got = 0
        if self._resumed:
            self._resumed = False
            return
        version, keep = parser.get_http_version().encode(), parser.should_keep_alive()
        if isinstance(parser, httptools.HttpResponseParser):
            status = parser.get_status_code()
            self._head = Head(version, headers, keep, status=status, reason=self._first)
        else:
            self._head = Head(version, headers, keep, method=parser.get_method(), target=self._first)
        self._events.append(self._head)

    def on_body(self, body: bytes) -> None:
        self._got += len(body)
        self._events.append(body)

    def on_message_complete(self) -> None:
        self._head = None
        self._events.append(End(tuple(self._headers)))
        self._headers = []
