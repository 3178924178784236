"""One end of a connection: bytes as they come, in pieces that are passed on before the next one is read."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import Callable
from typing import cast

from headstart.blame.proxy.wire import READ_BYTES, Messages

IDLE_S = 3.0
"""A connection to the server that was not used for longer is not used again: it may be closing."""
_HELD_BYTES = 4 * READ_BYTES
"""What may lie here unread before the other end is made to wait."""


class Side(asyncio.BufferedProtocol):
    """Messages in, bytes out. `opened` is called once there is a connection."""

    def __init__(self, *, replies: bool, opened: Callable[[Side], None] | None = None) -> None:
        self.messages = Messages(self, replies=replies)
        self.used = time.monotonic()
        self._opened = opened
        self._transport: asyncio.Transport | None = None
        self._room = memoryview(bytearray(READ_BYTES))
        self._inbox: deque[bytes] = deque()
        self._held = 0
        self._ended = False
        self._problem: Exception | None = None
        self._something = asyncio.Event()
        self._writable = asyncio.Event()
        self._closed = asyncio.Event()
        self._writable.set()

    async def put(self, data: bytes) -> None:
        """Sends, and waits while the other end is slow to take it. Raises OSError once it is gone."""
        self.write(data)
        await self._writable.wait()
        self._check()

    def write(self, data: bytes) -> None:
        """Sends, without waiting."""
        self._check()
        assert self._transport is not None
        self._transport.write(data)

    async def read(self) -> bytes:
        """A piece of what came, b"" at the end. Raises OSError where the connection broke."""
        while not self._inbox:
            if self._problem is not None:
                raise self._problem
            if self._ended:
                return b""
            self._something.clear()
            await self._something.wait()
        piece = self._inbox.popleft()
        before, self._held = self._held, self._held - len(piece)
        if before > _HELD_BYTES >= self._held and self._transport is not None:
            self._transport.resume_reading()
        return piece

    def fresh(self) -> bool:
        """Whether another request can be sent on it."""
        closing = self._transport is None or self._transport.is_closing()
        gone = self._ended or bool(self._inbox) or self.messages.waiting or closing
        return not gone and time.monotonic() - self.used < IDLE_S

    def drop(self) -> None:
        """Closes without another byte, so that the other end sees a break where there is one."""
        if self._transport is not None:
            self._transport.abort()

    async def close(self) -> None:
        """Closes once all is sent."""
        if self._transport is not None:
            with contextlib.suppress(asyncio.CancelledError):
                self._transport.close()
                await self._closed.wait()

    def _check(self) -> None:
        if self._closed.is_set():
            raise self._problem or ConnectionResetError("closed")

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # Those of uvloop are no subclass.
        self._transport = cast(asyncio.Transport, transport)
        if self._opened is not None:
            self._opened(self)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._room

    def buffer_updated(self, nbytes: int) -> None:
        before, self._held = self._held, self._held + nbytes
        self._inbox.append(bytes(self._room[:nbytes]))
        self._something.set()
        if before <= _HELD_BYTES < self._held and self._transport is not None:
            self._transport.pause_reading()

    def eof_received(self) -> bool:
        """Whether our half stays open; TLS has no halves."""
        self._ended = True
        self._something.set()
        return self._transport is not None and self._transport.get_extra_info("sslcontext") is None

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self._problem, self._ended = exc, True
        for event in (self._closed, self._something, self._writable):
            event.set()
