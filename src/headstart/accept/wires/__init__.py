"""Wire formats, one file each. A wire is stateless: asks into bodies, payloads into pieces."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from importlib import import_module
from typing import Any, Protocol, cast

from headstart.accept.exchange import Ask, Score

NAMES = ("openai_chat", "openai_completions", "anthropic", "ollama", "llama_native")


class Framing(StrEnum):
    """How a stream is cut into payloads: server-sent events, or one JSON object a line."""

    SSE = "sse"
    LINES = "lines"


@dataclass(frozen=True)
class Piece:
    """What one payload of a stream, or a whole reply, adds to an Exchange.

    The endpoint joins text, reasoning, scores and warnings of all pieces; of every other field the last
    value that is not None stands. `done`: the wire's own end of stream. `error`: the payload is an
    error, in the server's words.
    """

    text: str = ""
    reasoning: str = ""
    scores: tuple[Score, ...] = ()
    warnings: tuple[str, ...] = ()
    finish: str | None = None
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    reused: int | None = None
    server_prompt_s: float | None = None
    server_decode_s: float | None = None
    drafted: int | None = None
    accepted: int | None = None
    usage: Mapping[str, Any] = field(default_factory=dict)
    done: bool = False
    error: str | None = None


class Wire(Protocol):
    """One wire format.

    `chat`: takes `Ask.messages`; otherwise `Ask.prompt`. `scores`: can ask for log-probabilities.
    `path`: below the server's root, e.g. "/v1/chat/completions". `ends_with_done`: a stream without the
    end marker was dropped.
    """

    @property
    def name(self) -> str: ...
    @property
    def path(self) -> str: ...
    @property
    def chat(self) -> bool: ...
    @property
    def scores(self) -> bool: ...
    @property
    def framing(self) -> Framing: ...
    @property
    def ends_with_done(self) -> bool: ...

    def headers(self, api_key: str | None) -> dict[str, str]:
        """Headers beside Content-Type."""
        ...

    def body(self, ask: Ask, model: str | None) -> dict[str, Any]:
        """The JSON body of `ask`; `model` is used where the ask names none."""
        ...

    def event(self, payload: str) -> Piece:
        """One payload of a stream. Raises ValueError (json's included) for what is not this format."""
        ...

    def reply(self, body: bytes) -> Piece:
        """A whole reply that was not streamed. Raises ValueError like `event`."""
        ...


def load(name: str) -> Wire:
    """The wire of that name. Raises KeyError where there is none."""
    if name not in NAMES:
        raise KeyError(name)
    return cast(Wire, import_module(f"{__name__}.{name}").WIRE)
