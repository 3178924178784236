"""Several models behind one address: requests go where their `model` field says."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from typing import Any

from headstart.api.openai import model_json
from headstart.lab.defect import App, Message
from headstart.lab.stack import Stack

Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]


async def whole_body(receive: Receive) -> bytes:
    """A request's body, read to its end."""
    body, more = b"", True
    while more:
        message = await receive()
        body += message.get("body", b"")
        more = message["type"] == "http.request" and message.get("more_body", False)
    return body


def replayed(body: bytes, receive: Receive) -> Receive:
    """`receive` as it was before `body` was read from it."""
    given = False

    async def again() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return again


def json_object(body: bytes) -> dict[str, Any]:
    """`body` as a JSON object; empty where it is none."""
    try:
        value = json.loads(body)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


async def send_json(send: Send, body: Any, status: int = 200) -> None:
    """A whole reply."""
    data = json.dumps(body).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(data)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": data})


def front(stacks: Sequence[Stack]) -> App:
    """`stacks` as one server; the first answers for every name that none has."""

    async def app(scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and (scope["method"], scope["path"]) == ("GET", "/v1/models"):
            await send_json(send, {"object": "list", "data": [model_json(stack.served) for stack in stacks]})
            return
        chosen = stacks[0]
        if scope["type"] == "http" and scope["method"] == "POST":
            body = await whole_body(receive)
            receive = replayed(body, receive)
            name = json_object(body).get("model")
            chosen = next((stack for stack in stacks if stack.served.name == name), chosen)
        await chosen.app(scope, receive, send)

    return app
