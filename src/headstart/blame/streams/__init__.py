"""Puts a reply together from the bytes that pass: text, thinking, calls, token counts and times.

It is fed with copies and never waited for. Whatever a server sends, it answers with what was understood up
to there and a sentence that says what was not.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from headstart.blame.exchange import Dialect, Reply, Timing, Usage
from headstart.blame.streams import ollama, openai_chat, openai_responses
from headstart.blame.streams.anthropic import Messages
from headstart.blame.streams.framing import Decoder, Events, Lines, Whole
from headstart.blame.streams.parts import Parts, said

__all__ = ["Assembled", "Assembler"]

_OLLAMA = (Dialect.OLLAMA_CHAT, Dialect.OLLAMA_GENERATE)
_DONE = b"[DONE]"
_SERVERS = {"llama.cpp": "llama-server", "ollama": "ollama", "lm studio": "lm-studio"}


@dataclass(frozen=True)
class Assembled:
    """What became of a reply. `error`: why there is none, or not all of it. `server`: what sent it, where
    that shows."""

    reply: Reply
    usage: Usage
    timing: Timing
    error: str | None = None
    server: str | None = None


class Assembler:
    """One reply. `headers`: the reply's, names in lower case. `asked`: when the request's last byte went out,
    on the clock of `feed`'s times (seconds)."""

    def __init__(self, dialect: Dialect, status: int, headers: Mapping[str, str], asked: float) -> None:
        self._status = status
        self._asked = asked
        self._parts = Parts(server=_named(headers))
        self._decoder = Decoder(headers.get("content-encoding"))
        kind = headers.get("content-type", "").partition(";")[0].strip().lower()
        self._dialect, self._kind = dialect, kind
        self._frames: Events | Lines | Whole | None = None
        self._take = _taker(dialect)
        self._first: float | None = None
        self._last = asked
        self._unread = 0

    def feed(self, chunk: bytes, at: float) -> None:
        """Bytes of the body as they came, and when."""
        self._last = at
        text = self._decoder.feed(chunk)
        if not text:
            return
        if self._frames is None:
            self._frames = _frames(self._dialect, self._kind, text)
        for payload in self._frames.feed(text):
            self._payload(payload, at)

    @property
    def _streamed(self) -> bool:
        return isinstance(self._frames, Events | Lines)

    def end(self, broken: str | None = None) -> Assembled:
        """The reply. `broken`: why its bytes ended early, where they did."""
        for payload in self._frames.end() if self._frames is not None else ():
            self._payload(payload, self._last)
        parts = self._parts
        return Assembled(
            reply=parts.reply,
            usage=parts.usage,
            timing=Timing(
                first_token=None if self._first is None else self._first - self._asked,
                total=self._last - self._asked,
                prefill=parts.prefill_s,
                load=parts.load_s,
            ),
            error=self._error(broken),
            server=parts.server,
        )

    def _payload(self, payload: bytes, at: float) -> None:
        if payload.strip() == _DONE:
            self._parts.done = True
            return
        try:
            value = json.loads(payload.decode("utf-8", "replace"))
        except (ValueError, RecursionError):
            self._unread += 1
            if self._status >= 400 and not self._streamed:
                self._parts.fail(payload.decode("utf-8", "replace"))
            return
        if not isinstance(value, dict):
            self._unread += 1
            return
        if self._status >= 400 and not value.get("error"):
            self._parts.fail(value)
        if self._take(self._parts, value) and self._first is None and self._streamed:
            self._first = at

    def _error(self, broken: str | None) -> str | None:
        told = []
        if self._status >= 400:
            told.append(f"status {self._status}" + (f": {self._parts.error}" if self._parts.error else ""))
        elif self._parts.error:
            told.append(self._parts.error)
        # With the end mark clients have all they want, and many hang up there.
        early = broken if not (self._streamed and self._parts.done) else None
        told += [problem for problem in (self._decoder.problem, early) if problem]
        if self._unread and self._status < 400:
            what = "events of the stream were" if self._streamed else "bodies of the reply were"
            told.append(f"{self._unread} {what} no JSON object and were passed over")
        if not told and not self._parts.done and (self._streamed or self._frames is None):
            told.append("the stream ended without its end mark" if self._frames else "the reply is empty")
        return said("; ".join(told)) if told else None


def _frames(dialect: Dialect, kind: str, begin: bytes) -> Events | Lines | Whole:
    """How the body is cut. Where its type does not tell, its first bytes do."""
    if kind == "text/event-stream":
        return Events()
    if kind.endswith(("ndjson", "jsonl")):
        return Lines()
    if kind.endswith("json"):
        return Whole()
    if begin.lstrip().startswith((b"data:", b"event:", b":")):
        return Events()
    return Lines() if dialect in _OLLAMA else Whole()


def _taker(dialect: Dialect) -> Callable[[Parts, Mapping[str, Any]], bool]:
    if dialect in _OLLAMA:
        return ollama.take
    if dialect is Dialect.ANTHROPIC:
        return Messages().take
    return openai_responses.take if dialect is Dialect.OPENAI_RESPONSES else openai_chat.take


def _named(headers: Mapping[str, str]) -> str | None:
    name = headers.get("server", "").lower()
    return next((server for sign, server in _SERVERS.items() if sign in name), None)
