"""A client's connection, and the one behind it that is its own."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import time

from headstart.blame.proxy.answers import answer
from headstart.blame.proxy.heads import reply_head, request_head, written
from headstart.blame.proxy.passing import Passing
from headstart.blame.proxy.service import Service
from headstart.blame.proxy.side import IDLE_S, Side
from headstart.blame.proxy.wire import Broken, End, Head

_DRAIN_S = 5.0
_NO_BODY = (204, 304)


class _ClientGone(Exception):
    """The client closed its connection before it had its reply."""


class Connection:
    """A client's connection and the one behind it."""

    def __init__(self, service: Service, client: Side) -> None:
        self._service = service
        self.client = client
        self._behind: Side | None = None

    async def run(self) -> None:
        """Exchanges one after the other, until one side has enough."""
        more = True
        while more:
            try:
                head = await self.client.messages.next()
            except Broken as problem:
                message = f"headstart watch: not HTTP/1.1: {problem}"
                await self._answer(400, message, "bad_request", close=True)
                return
            except OSError:
                return
            if not isinstance(head, Head):
                return
            more = await self._exchange(head)

    async def close(self) -> None:
        if self._behind is not None:
            await self._behind.close()
        await self.client.close()

    async def _exchange(self, head: Head) -> bool:
        """One request and its reply. Whether the connection goes on."""
        passing = self._service.passing(head)
        refused = self._service.refusal(head)
        if refused is not None:
            await self._answer(403, refused, "forbidden", close=True)
            return False
        try:
            if self._behind is None or not self._behind.fresh():
                await self._reopen()
            return await self._pass(passing)
        except (OSError, Broken) as problem:
            return await self._fail(passing, problem)
        except asyncio.CancelledError:
            passing.fail("headstart watch was stopped")
            raise
        finally:
            self._service.tell(passing)

    async def _reopen(self) -> None:
        if self._behind is not None:
            await self._behind.close()
            self._behind = None
        self._behind = await self._service.connect()

    async def _fail(self, passing: Passing, problem: Exception) -> bool:
        """No reply came, or only a part: says so where nothing was said yet, else breaks off as it broke."""
        url = self._service.upstream.url
        if self._behind is None:
            message = f"nothing answers at {url} ({said(problem)}); start the server, or correct --upstream"
        elif isinstance(problem, Broken):
            message = f"{url} does not speak HTTP/1.1 ({problem})"
        else:
            message = f"{url} broke off ({said(problem)})"
        passing.fail(message)
        if self._behind is not None:
            self._behind.drop()
        if passing.reply_head is not None:
            self.client.drop()
            return False
        with contextlib.suppress(OSError, TimeoutError, Broken):
            await self._answer(502, f"headstart watch: {message}", "upstream_unreachable", close=True)
            if passing.asked is None:
                await asyncio.wait_for(self._swallow(), _DRAIN_S)
        return False

    async def _answer(self, status: int, message: str, kind: str, *, close: bool) -> None:
        with contextlib.suppress(OSError):
            await self.client.put(answer(status, message, kind, close=close))

    async def _swallow(self) -> None:
        """Reads the rest of a request: a close with bytes unread may destroy the answer."""
        while not isinstance(await self.client.messages.next(), End | None):
            pass

    async def _pass(self, passing: Passing) -> bool:
        assert self._behind is not None
        up = asyncio.create_task(self._up(passing, self._behind))
        down = asyncio.create_task(self._down(passing, self._behind))
        try:
            await asyncio.wait((up, down), return_when=asyncio.FIRST_COMPLETED)
            if up.done() and not down.done():
                up.result()
            more = await down
        except _ClientGone:
            passing.fail("the client went away before the reply had ended")
            self._behind.drop()
            return False
        finally:
            for task in (up, down):
                task.cancel()
            await asyncio.gather(up, down, return_exceptions=True)
        # A reply before the whole request: the rest of it would be taken for the next one.
        return more and passing.asked is not None

    async def _up(self, passing: Passing, behind: Side) -> None:
        """The request on its way; then waits for the client to go away. Raises _ClientGone."""
        try:
            await self._send(passing, behind)
        except OSError:
            # The server hung up on the request. What it said before counts, not this.
            return
        passing.asked = time.perf_counter()
        try:
            while await self.client.messages.fill():
                if self.client.messages.waiting:
                    return
        except (OSError, Broken):
            pass
        raise _ClientGone

    async def _send(self, passing: Passing, behind: Side) -> None:
        head, upstream = passing.head, self._service.upstream
        held: list[bytes] = []
        if self._service.mend is not None and passing.dialect is not None:
            held, whole = await self._hold(passing)
            if whole:
                body = await self._service.mend(passing, b"".join(held))
                await behind.put(request_head(head, upstream, len(body)) + body)
                return
            passing.notes.append("fix: so large a request is not repaired")
        behind.write(request_head(head, upstream))
        for piece in held:
            await behind.put(_chunk(piece) if head.chunked else piece)
        while True:
            event = await self._piece()
            if isinstance(event, End):
                break
            passing.sent(event)
            await behind.put(_chunk(event) if head.chunked else event)
        if head.chunked:
            await behind.put(b"0\r\n" + written(event.trailers))

    async def _hold(self, passing: Passing) -> tuple[list[bytes], bool]:
        """The request's body before it is passed on, and whether that is all of it: not where it is larger
        than what is kept."""
        if (passing.head.get(b"expect") or b"").lower() == b"100-continue":
            await self.client.put(b"HTTP/1.1 100 Continue\r\n\r\n")
        pieces: list[bytes] = []
        while not passing.cut:
            event = await self._piece()
            if isinstance(event, End):
                return pieces, True
            passing.sent(event)
            pieces.append(event)
        return pieces, False

    async def _piece(self) -> bytes | End:
        """The next piece of the request. Raises _ClientGone."""
        try:
            event = await self.client.messages.next()
        except (OSError, Broken):
            raise _ClientGone from None
        if isinstance(event, bytes | End):
            return event
        raise _ClientGone

    async def _down(self, passing: Passing, behind: Side) -> bool:
        """The reply on its way. Whether both connections go on after it. Raises OSError, Broken."""
        head = await behind.messages.next()
        while isinstance(head, Head) and head.status < 200:
            await self.client.put(reply_head(head, chunks=True))
            await behind.messages.next()
            head = await behind.messages.next()
        if not isinstance(head, Head):
            raise ConnectionResetError("closed without a reply")
        passing.reply_head = head
        chunks = passing.head.version == b"1.1" or not head.chunked
        await self._tell(reply_head(head, chunks=chunks))
        if passing.head.method != b"HEAD" and head.status not in _NO_BODY:
            await self._body(passing, behind, framed=head.chunked and chunks)
        passing.finished = True
        behind.used = time.monotonic()
        return self._goes_on(passing, head)

    def _goes_on(self, passing: Passing, head: Head) -> bool:
        # The parser waits for the body of a reply to HEAD, so that connection is not used again.
        used_up = passing.head.method == b"HEAD" or not head.keep_alive or not head.framed
        if used_up and head.status not in _NO_BODY and self._behind is not None:
            self._behind.used = -IDLE_S
        without_end = not head.framed and head.status not in _NO_BODY
        unchunked = head.chunked and passing.head.version != b"1.1"
        return passing.head.keep_alive and head.keep_alive and not without_end and not unchunked

    async def _body(self, passing: Passing, behind: Side, *, framed: bool) -> None:
        while True:
            event = await behind.messages.next()
            if isinstance(event, End):
                break
            if not isinstance(event, bytes):
                raise ConnectionResetError("closed in the middle of a reply")
            passing.came(event)
            await self._tell(_chunk(event) if framed else event)
        if framed:
            await self._tell(b"0\r\n" + written(event.trailers))

    async def _tell(self, data: bytes) -> None:
        try:
            await self.client.put(data)
        except OSError:
            raise _ClientGone from None


def _chunk(piece: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(piece), piece)


def said(problem: Exception) -> str:
    """An error of the network in words."""
    if isinstance(problem, ssl.SSLCertVerificationError):
        return f"its certificate cannot be trusted: {problem.verify_message}"
    if isinstance(problem, socket.gaierror):
        return "there is no such host"
    if isinstance(problem, ConnectionRefusedError):
        return "connection refused"
    return getattr(problem, "strerror", None) or str(problem) or type(problem).__name__
