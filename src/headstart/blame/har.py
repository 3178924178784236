"""A recording as HAR 1.2, for tools that show HTTP traffic (http://www.softwareishard.com/blog/har-12-spec/)."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Any
from urllib.parse import parse_qsl

from headstart import __version__
from headstart.blame.exchange import Exchange, Timing

_UNKNOWN = -1
"""HAR's number for what is not known."""


def to_har(exchanges: Iterable[Exchange], upstream: str) -> dict[str, Any]:
    """A HAR document. Replies are as they were put together, not as they were sent: text, thinking, calls and
    what the server told in one JSON object."""
    creator = {"name": "headstart watch", "version": __version__}
    entries = [_entry(exchange, upstream.rstrip("/")) for exchange in exchanges]
    return {"log": {"version": "1.2", "creator": creator, "entries": entries}}


def _entry(exchange: Exchange, upstream: str) -> dict[str, Any]:
    timings = _timings(exchange.timing)
    return {
        "startedDateTime": datetime.fromtimestamp(exchange.started, UTC).isoformat(),
        "time": timings["wait"] + timings["receive"],
        "request": _request(exchange, upstream),
        "response": _response(exchange),
        "cache": {},
        "timings": timings,
        "comment": "; ".join(
            [exchange.dialect.value, *exchange.notes, *([exchange.error] if exchange.error else [])]
        ),
    }


def _timings(timing: Timing) -> dict[str, Any]:
    """Milliseconds. HAR takes no negative number here, so what is not known is told in a comment."""
    total_s, first_s = timing.total, timing.first_token
    wait_s = first_s if first_s is not None else (total_s or 0)
    receive_s = max(0.0, (total_s or 0) - wait_s)
    told = {"send": 0, "wait": wait_s * 1000, "receive": receive_s * 1000}
    if first_s is not None and total_s is not None:
        return told
    lacking = [name for name, one in (("first token", first_s), ("end", total_s)) if one is None]
    return {**told, "comment": f"not measured: {', '.join(lacking)}"}


def _request(exchange: Exchange, upstream: str) -> dict[str, Any]:
    kept = exchange.body if exchange.body is not None else {"digests": dict(exchange.digests)}
    text = json.dumps(kept, ensure_ascii=False)
    return {
        "method": exchange.method,
        "url": upstream + exchange.path + (f"?{exchange.query}" if exchange.query else ""),
        "httpVersion": "HTTP/1.1",
        "cookies": [],
        "headers": _pairs(exchange.headers),
        "queryString": [
            {"name": name, "value": value}
            for name, value in parse_qsl(exchange.query, keep_blank_values=True)
        ],
        "postData": {"mimeType": exchange.headers.get("content-type", "application/json"), "text": text},
        "headersSize": _UNKNOWN,
        "bodySize": len(text.encode("utf-8", "replace")),
    }


def _response(exchange: Exchange) -> dict[str, Any]:
    status = exchange.status or 0
    known = {one.value for one in HTTPStatus}
    text = json.dumps({"reply": asdict(exchange.reply), "usage": asdict(exchange.usage)}, ensure_ascii=False)
    return {
        "status": status,
        "statusText": HTTPStatus(status).phrase if status in known else (exchange.error or ""),
        "httpVersion": "HTTP/1.1",
        "cookies": [],
        "headers": _pairs(exchange.reply_headers),
        "content": {
            "size": len(text.encode("utf-8", "replace")),
            "mimeType": "application/json",
            "text": text,
            "comment": "put together from what was sent",
        },
        "redirectURL": exchange.reply_headers.get("location", ""),
        "headersSize": _UNKNOWN,
        "bodySize": _UNKNOWN,
    }


def _pairs(headers: Mapping[str, str]) -> list[dict[str, str]]:
    return [{"name": name, "value": value} for name, value in headers.items()]
