"""One request and what came of it: what a recording is made of.

A number that a server told, 0, and None for what it did not tell, are three different things.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class Dialect(StrEnum):
    """The API a body is written for."""

    OPENAI_CHAT = "openai-chat"
    OPENAI_COMPLETIONS = "openai-completions"
    OPENAI_RESPONSES = "openai-responses"
    ANTHROPIC = "anthropic"
    OLLAMA_CHAT = "ollama-chat"
    OLLAMA_GENERATE = "ollama-generate"


@dataclass(frozen=True)
class ToolCall:
    """A call as it was generated. `arguments`: the text, to the byte; where the wire has only an object, its
    JSON with `exact` false."""

    id: str
    name: str
    arguments: str
    exact: bool = True


@dataclass(frozen=True)
class Reply:
    """What the model said: text, thinking and calls put together from the stream, as they were sent."""

    text: str = ""
    thinking: str = ""
    calls: tuple[ToolCall, ...] = ()
    finish: str | None = None


@dataclass(frozen=True)
class Usage:
    """Tokens as the server counts them. `prompt`: all of it. `cached`: those that were not computed."""

    prompt: int | None = None
    cached: int | None = None
    completion: int | None = None

    @property
    def read(self) -> int | None:
        """Prompt tokens that were computed."""
        return None if self.prompt is None or self.cached is None else self.prompt - self.cached


@dataclass(frozen=True)
class Timing:
    """Seconds. `first_token`: from the request's last byte to the first content. `prefill` and `load`: the
    server's own, where it tells them."""

    first_token: float | None = None
    total: float | None = None
    prefill: float | None = None
    load: float | None = None


@dataclass(frozen=True)
class Exchange:
    """A request and its reply. `number`: its place in the recording, from 1. `started`: Unix time in seconds.
    `body`: the request, parsed; None where it was no JSON or is not kept. `digests`: of a body that is not
    kept, the SHA-256 of every part by its JSON path. `server`: what the upstream is, where that is known
    (llama-server, ollama, headstart, ...). `error`: why there is no reply, or not all of it. `notes`: what
    was done to the exchange on its way or in its record: a repair, a cut body. `path` has no query."""

    number: int
    started: float
    dialect: Dialect
    path: str
    body: Any
    reply: Reply = field(default_factory=Reply)
    usage: Usage = field(default_factory=Usage)
    timing: Timing = field(default_factory=Timing)
    status: int | None = None
    server: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    digests: Mapping[str, str] = field(default_factory=dict)
    error: str | None = None
    method: str = "POST"
    query: str = ""
    reply_headers: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
