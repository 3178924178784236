"""Sends an Ask over a wire and times what comes back. Whatever the server does becomes an Exchange."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import httpx

from headstart.accept.exchange import Ask, Event, Exchange, Failure, FailureKind, Score
from headstart.accept.frames import Frames
from headstart.accept.wires import Piece, Wire

CONNECT_S = 10.0
LARGEST_REPLY_BYTES = 64 << 20
_LATEST = (
    "finish",
    "prompt_tokens",
    "completion_tokens",
    "reused",
    "server_prompt_s",
    "server_decode_s",
    "drafted",
    "accepted",
)


class _StopError(Exception):
    """Ends the reading of a reply; carries why."""

    def __init__(self, kind: FailureKind, detail: str, status: int | None = None) -> None:
        super().__init__(detail)
        self.failure = Failure(kind, detail, status)


@dataclass
class _Reading:
    """A reply as far as it has come."""

    begun_s: float
    status: int | None = None
    headers: dict[str, str] = field(default_factory=dict)
    raw: bytearray = field(default_factory=bytearray)
    events: list[Event] = field(default_factory=list)
    text: list[str] = field(default_factory=list)
    reasoning: list[str] = field(default_factory=list)
    scores: list[Score] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    latest: dict[str, Any] = field(default_factory=dict)
    usage: dict[str, Any] = field(default_factory=dict)
    first_any_s: float | None = None
    first_word_s: float | None = None
    progress_s: float = 0.0
    done: bool = False

    def age_s(self) -> float:
        return time.perf_counter() - self.begun_s

    def take(self, piece: Piece, at_s: float) -> None:
        """Adds `piece`, which arrived at `at_s`. Raises _StopError for an error of the server's."""
        if piece.error is not None:
            raise _StopError(FailureKind.SERVER_ERROR, _one_line(piece.error), self.status)
        said = piece.text + piece.reasoning
        if said:
            self.progress_s = at_s
            self.first_any_s = at_s if self.first_any_s is None else self.first_any_s
            if said.strip() and self.first_word_s is None:
                self.first_word_s = at_s
        self.text.append(piece.text)
        self.reasoning.append(piece.reasoning)
        self.scores += piece.scores
        self.warnings += [warning for warning in piece.warnings if warning not in self.warnings]
        self.usage |= piece.usage
        for name in _LATEST:
            value = getattr(piece, name)
            if value is not None:
                self.latest[name] = value
        self.done = self.done or piece.done


@dataclass(frozen=True)
class _Sending:
    """A request on its way."""

    url: str
    body: bytes
    ask: Ask
    wire: Wire
    cancel_after_s: float | None


class Endpoint:
    """Sends requests to one server. Thread-safe.

    `patience_s`: how long nothing may be said before a request counts as hung.
    """

    def __init__(self, root: str, api_key: str | None = None, patience_s: float = 600.0) -> None:
        self.root = root
        self._api_key = api_key
        self._patience_s = patience_s
        self._client = httpx.Client(
            timeout=httpx.Timeout(patience_s, connect=CONNECT_S, write=patience_s, pool=None),
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=0),
            trust_env=False,
        )

    def close(self) -> None:
        self._client.close()

    def send(
        self,
        ask: Ask,
        wire: Wire,
        *,
        model: str | None,
        case: str = "",
        cancel_after_s: float | None = None,
        root: str | None = None,
    ) -> Exchange:
        """Sends `ask` and reads the reply to its end, or to where it fails. Never raises for what the
        server does. `cancel_after_s`: closes the connection then. `root`: another server's."""
        body = json.dumps(wire.body(ask, model)).encode()
        reading = _Reading(time.perf_counter())
        started = time.time()
        failure: Failure | None = None
        try:
            url = (root or self.root) + wire.path
            self._receive(reading, _Sending(url, body, ask, wire, cancel_after_s))
        except _StopError as stop:
            failure = stop.failure
        except httpx.ConnectError as error:
            failure = Failure(FailureKind.UNREACHABLE, _one_line(f"cannot connect: {error}"))
        except httpx.TimeoutException as error:
            failure = self._timed_out(error, reading, cancel_after_s)
        except (httpx.HTTPError, httpx.StreamError) as error:
            failure = Failure(FailureKind.DROPPED, _one_line(f"the connection was lost: {error}"))
        except (ValueError, RecursionError) as error:
            failure = Failure(
                FailureKind.BROKEN, _one_line(f"not the wire's format: {error}"), reading.status
            )
        exchange = _exchange(ask, started, reading, failure)
        return replace(exchange, case=case, request_body=body)

    def _receive(self, reading: _Reading, sending: _Sending) -> None:
        ask, wire, cancel_after_s = sending.ask, sending.wire, sending.cancel_after_s
        headers = {"Content-Type": "application/json"} | wire.headers(self._api_key)
        patience_s = self._patience_s if cancel_after_s is None else min(cancel_after_s, self._patience_s)
        timeout = httpx.Timeout(patience_s, connect=CONNECT_S, write=self._patience_s, pool=None)
        with self._client.stream(
            "POST", sending.url, content=sending.body, headers=headers, timeout=timeout
        ) as reply:
            reading.status = reply.status_code
            reading.headers = dict(reply.headers)
            kind = reply.headers.get("content-type", "")
            streamed = ask.stream and reply.status_code == 200 and "application/json" not in kind
            frames = Frames(wire.framing) if streamed else None
            for chunk in reply.iter_bytes():
                self._check(reading, cancel_after_s)
                reading.raw += chunk
                if frames is not None and self._frames(reading, frames.feed(chunk), wire):
                    return
            if frames is not None:
                self._frames(reading, frames.end(), wire)
                _check_end(reading, wire)
                return
        _take_whole(reading, wire)

    def _check(self, reading: _Reading, cancel_after_s: float | None) -> None:
        age_s = reading.age_s()
        if cancel_after_s is not None and age_s >= cancel_after_s:
            raise _StopError(FailureKind.CANCELLED, f"cancelled after {age_s:.2f} s")
        if age_s - reading.progress_s > self._patience_s:
            raise _StopError(FailureKind.HUNG, f"said nothing for {self._patience_s:.0f} s", reading.status)
        if len(reading.raw) > LARGEST_REPLY_BYTES:
            raise _StopError(FailureKind.BROKEN, "the reply is larger than 64 MB", reading.status)

    def _frames(self, reading: _Reading, payloads: list[str], wire: Wire) -> bool:
        """Takes payloads; True at the wire's end of stream."""
        at_s = reading.age_s()
        for payload in payloads:
            reading.events.append(Event(at_s, payload))
            if not payload.startswith(":"):
                reading.take(wire.event(payload), at_s)
        return reading.done

    def _timed_out(
        self, error: httpx.TimeoutException, reading: _Reading, cancel_after_s: float | None
    ) -> Failure:
        age_s = reading.age_s()
        if isinstance(error, httpx.ConnectTimeout):
            return Failure(FailureKind.UNREACHABLE, f"no connection within {CONNECT_S:.0f} s")
        if cancel_after_s is not None and age_s >= cancel_after_s:
            return Failure(FailureKind.CANCELLED, f"cancelled after {age_s:.2f} s")
        return Failure(FailureKind.HUNG, f"nothing came for {self._patience_s:.0f} s", reading.status)


def _check_end(reading: _Reading, wire: Wire) -> None:
    if reading.done or not wire.ends_with_done:
        return
    if "finish" not in reading.latest:
        raise _StopError(FailureKind.DROPPED, "the stream ended in the middle of the reply", reading.status)
    reading.warnings.append("the stream ended without its end marker")


def _take_whole(reading: _Reading, wire: Wire) -> None:
    """A reply in one piece, or an error. Raises _StopError for the latter."""
    status = reading.status or 0
    if status != 200:
        kind = FailureKind.REFUSED if 400 <= status < 500 else FailureKind.SERVER_ERROR
        raise _StopError(kind, f"status {status}: {_error_words(wire, bytes(reading.raw))}", status)
    reading.take(wire.reply(bytes(reading.raw)), reading.age_s())
    reading.done = True


def _error_words(wire: Wire, body: bytes) -> str:
    """The server's own message, as far as it can be found."""
    try:
        found = wire.reply(body).error
    except (ValueError, TypeError, AttributeError):
        found = None
    if found is None:
        try:
            data = json.loads(body)
            found = data.get("message") or data.get("detail") if isinstance(data, Mapping) else None
        except ValueError:
            found = None
    return _one_line(str(found or body.decode("utf-8", "replace") or "no message"))


def _one_line(text: str, most: int = 300) -> str:
    line = " ".join(text.split())
    return line if len(line) <= most else line[: most - 3] + "..."


def _exchange(ask: Ask, started: float, reading: _Reading, failure: Failure | None) -> Exchange:
    streamed = bool(reading.events)
    first_s = reading.first_any_s if reading.first_word_s is None else reading.first_word_s
    return Exchange(
        case="",
        ask=ask,
        started=started,
        total_s=reading.age_s(),
        status=reading.status,
        raw=bytes(reading.raw),
        headers=reading.headers,
        events=tuple(reading.events),
        first_token_s=first_s if streamed else None,
        text="".join(reading.text),
        reasoning="".join(reading.reasoning),
        scores=tuple(reading.scores),
        warnings=tuple(reading.warnings),
        usage=reading.usage,
        failure=failure,
        **reading.latest,
    )
