"""ASGI in front of the API that changes what is asked and what is answered, payload by payload."""

from __future__ import annotations

import json
from collections.abc import Callable, MutableMapping
from typing import Any

from headstart.lab.defect import App, Message
from headstart.lab.front import Receive, Send, json_object, replayed, whole_body

Json = dict[str, Any]
Change = Callable[[Json], Json]
Answer = Callable[[Json, Json], Json]
"""What becomes of a payload of the reply to a request: (asked, payload)."""


def rewriting(app: App, *, asked: Change | None = None, answered: Answer | None = None) -> App:
    """`app`, but the JSON of requests to generate goes through `asked`, and every JSON payload of the
    reply, streamed or whole, through `answered`, which gets the request as the client sent it."""

    async def changed(scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not scope["path"].endswith("/completions"):
            await app(scope, receive, send)
            return
        body = await whole_body(receive)
        request = json_object(body)
        if asked is not None and request:
            body = json.dumps(asked(dict(request))).encode()
            scope = {**scope, "headers": _with_length(scope["headers"], len(body))}
        out = send if answered is None else _Rewriter(send, lambda payload: answered(request, payload))
        await app(scope, replayed(body, receive), out)

    return changed


class _Rewriter:
    """An ASGI `send` that changes the JSON which goes through it."""

    def __init__(self, send: Send, change: Change) -> None:
        self._send = send
        self._change = change
        self._start: Message = {}
        self._held = b""

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._start = message
            self._streams = b"text/event-stream" in dict(message["headers"]).get(b"content-type", b"")
            if self._streams:
                await self._send(message)
            return
        body, more = message.get("body", b""), message.get("more_body", False)
        if self._streams:
            await self._send({**message, "body": self._events(body, last=not more)})
            return
        self._held += body
        if not more:
            whole = self._held
            if json_object(whole):
                whole = json.dumps(self._change(json_object(whole))).encode()
            await self._send({**self._start, "headers": _with_length(self._start["headers"], len(whole))})
            await self._send({**message, "body": whole})

    def _events(self, body: bytes, *, last: bool) -> bytes:
        """Every whole event that is there, changed; the rest waits for more."""
        *events, self._held = (self._held + body).split(b"\n\n")
        if last and self._held:
            events, self._held = [*events, self._held], b""
        return b"".join(self._event(event) + b"\n\n" for event in events)

    def _event(self, event: bytes) -> bytes:
        payload = json_object(event.removeprefix(b"data: "))
        return b"data: " + json.dumps(self._change(payload)).encode() if payload else event


def _with_length(headers: list[tuple[bytes, bytes]], length: int) -> list[tuple[bytes, bytes]]:
    kept = [(name, value) for name, value in headers if name.lower() != b"content-length"]
    return [*kept, (b"content-length", str(length).encode())]
