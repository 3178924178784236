"""Several models behind one address: requests go where their `model` field says."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from typing import Any

from headstart.api.metrics import CONTENT_TYPE
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


async def _send(send: Send, data: bytes, content_type: str) -> None:
    headers = [(b"content-type", content_type.encode()), (b"content-length", str(len(data)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": data})


def added(pages: Sequence[bytes]) -> bytes:
    """Several pages of Prometheus' text format as one: what has one name on several is added up."""
    lines: dict[str, float | None] = {}
    for line in (line for page in pages for line in page.decode().splitlines()):
        name, _, value = line.rpartition(" ")
        if line.startswith("#") or not name:
            lines.setdefault(line, None)
        else:
            lines[name] = (lines.get(name) or 0.0) + float(value)
    return "".join(f"{k}\n" if v is None else f"{k} {v}\n" for k, v in lines.items()).encode()


def front(stacks: Sequence[Stack]) -> App:
    """`stacks` as one server; the first answers for every name that none has."""

    async def app(scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and (scope["method"], scope["path"]) == ("GET", "/v1/models"):
            listed = {"object": "list", "data": [model_json(stack.served) for stack in stacks]}
            await _send(send, json.dumps(listed).encode(), "application/json")
            return
        if scope["type"] == "http" and (scope["method"], scope["path"]) == ("GET", "/metrics"):
            await _send(send, added([stack.metrics.render() for stack in stacks]), CONTENT_TYPE)
            return
        chosen = stacks[0]
        if scope["type"] == "http" and scope["method"] == "POST":
            body = await whole_body(receive)
            receive = replayed(body, receive)
            name = json_object(body).get("model")
            chosen = next((stack for stack in stacks if stack.served.name == name), chosen)
        await chosen.app(scope, receive, send)

    return app
