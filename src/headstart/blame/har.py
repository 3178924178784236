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
from headstart.blame.exchange import Exchange

_UNKNOWN = -1
"""HAR's number for what is not known."""


def to_har(exchanges: Iterable[Exchange], upstream: str) -> dict[str, Any]:
    """A HAR document. Replies are as they were put together, not as they were sent: text, thinking, calls and
    what the server told in one JSON object."""
    creator = {"name": "headstart watch", "version": __version__}
    entries = [_entry(exchange, upstream.rstrip("/")) for exchange in exchanges]
    return {"log": {"version": "1.2", "creator": creator, "entries": entries}}


def _entry(exchange: Exchange, upstream: str) -> dict[str, Any]:
    total_s, first_s = exchange.timing.total, exchange.timing.first_token
    wait_ms = _UNKNOWN if first_s is None else first_s * 1000
    receive_ms = _UNKNOWN if total_s is None or first_s is None else (total_s - first_s) * 1000
    return {
        "startedDateTime": datetime.fromtimestamp(exchange.started, UTC).isoformat(),
        "time": 0 if total_s is None else total_s * 1000,
        "request": _request(exchange, upstream),
        "response": _response(exchange),
        "cache": {},
        "timings": {"send": 0, "wait": wait_ms, "receive": receive_ms},
        "comment": "; ".join(
            [exchange.dialect.value, *exchange.notes, *([exchange.error] if exchange.error else [])]
        ),
    }


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
