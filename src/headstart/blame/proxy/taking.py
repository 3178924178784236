"""From what passed to an exchange: bodies parsed, the reply put together."""

from __future__ import annotations

import json
from typing import Any

from headstart.blame.exchange import Exchange
from headstart.blame.proxy.passing import Passing
from headstart.blame.proxy.wire import Head
from headstart.blame.streams import Assembled, Assembler
from headstart.blame.streams.framing import Decoder


def exchange_of(passing: Passing, number: int) -> Exchange:
    """What passed, understood as far as it can be. `passing` must have a dialect."""
    assert passing.dialect is not None
    notes = list(passing.notes)
    body = _body(passing, notes)
    head = passing.reply_head
    reply = reply_of(passing)
    missing = None if passing.finished else "there is no reply"
    return Exchange(
        number=number,
        started=passing.started,
        dialect=passing.dialect,
        path=passing.path,
        query=passing.query,
        method=passing.head.method.decode("latin-1"),
        body=body,
        headers=by_name(passing.head),
        status=None if head is None else head.status,
        reply_headers={} if head is None else by_name(head),
        error=(passing.error or missing) if reply is None else reply.error,
        notes=tuple(notes),
        **({} if reply is None else _told(reply)),
    )


def by_name(head: Head) -> dict[str, str]:
    """Headers by their name in lower case; those that came twice are joined."""
    headers: dict[str, str] = {}
    for name, value in head.headers:
        key, text = name.decode("latin-1").lower(), value.decode("latin-1")
        headers[key] = f"{headers[key]}, {text}" if key in headers else text
    return headers


def parsed(body: bytes, encoding: str | None) -> tuple[Any, str | None]:
    """A request's body, or None and why it cannot be read."""
    decoder = Decoder(encoding)
    plain = decoder.feed(body)
    if decoder.problem is not None:
        return None, f"request: {decoder.problem}"
    try:
        return json.loads(plain), None
    except (ValueError, RecursionError) as problem:
        return None, f"the request's body is not JSON: {problem}"


def _body(passing: Passing, notes: list[str]) -> Any:
    if passing.cut:
        notes.append(
            f"the request's body has {passing.request_bytes:,} bytes; it is not kept, as it is over "
            f"{passing.limit:,}"
        )
        return None
    encoding = by_name(passing.head).get("content-encoding")
    body, problem = parsed(b"".join(passing.request), encoding)
    if problem is not None:
        notes.append(problem)
    return body


def reply_of(passing: Passing) -> Assembled | None:
    """The reply put together; None where there is none."""
    head = passing.reply_head
    if head is None or passing.dialect is None:
        return None
    asked = passing.began if passing.asked is None else passing.asked
    assembler = Assembler(passing.dialect, head.status, by_name(head), asked)
    for piece, at in passing.pieces:
        assembler.feed(piece, at)
    broken = passing.error
    if passing.reply_bytes > passing.limit:
        broken = broken or f"of the reply's {passing.reply_bytes:,} bytes {passing.limit:,} were recorded"
    return assembler.end(broken)


def _told(reply: Assembled) -> dict[str, Any]:
    return {"reply": reply.reply, "usage": reply.usage, "timing": reply.timing, "server": reply.server}
