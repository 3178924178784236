"""Server-sent events: the response that carries a reply while it is made."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from typing import Any

from fastapi import Response
from pydantic_core import to_json
from starlette.types import Receive, Scope, Send

EVENTS = "text/event-stream"
KEEP_ALIVE = b": keep-alive\n\n"
"""A comment (WHATWG HTML, "Server-sent events"): no client takes it for content."""
DONE = b"data: [DONE]\n\n"


def data_event(value: dict[str, Any]) -> bytes:
    """One event with `value` as JSON."""
    return b"data: " + to_json(value) + b"\n\n"


class EventStream(Response):
    """Sends what `events` yields as it comes; whatever happens, `close` is called in the end.

    Whoever makes the events watches the connection; this response only sends.
    """

    def __init__(
        self, events: AsyncGenerator[bytes, None], close: Callable[[], None], media_type: str = EVENTS
    ) -> None:
        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        super().__init__(headers=headers, media_type=media_type)
        del self.headers["content-length"]
        self._events = events
        self._close = close

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        start = {"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers}
        try:
            await send(start)
            async for event in self._events:
                await send({"type": "http.response.body", "body": event, "more_body": True})
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        except OSError:
            return  # the client is gone
        finally:
            self._close()
            await self._events.aclose()
