"""What is asked of a server and what came back: plain data, without wire or server.

Three things are never mixed up: a number the server told, 0, and None for what it did not tell.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


@dataclass(frozen=True)
class Message:
    """One message of a conversation. `role`: system, user or assistant."""

    role: str
    content: str


@dataclass(frozen=True)
class Ask:
    """A request, free of any wire format. Exactly one of `prompt` and `messages` is given.

    `prompt`: text to continue as it stands (completion wires). `messages`: a conversation (chat
    wires). `logprobs`: how many alternatives a token to ask for (0: none; a wire that has no such
    field leaves it out). `options`: fields put into the body last and as they are, for what only one
    server knows (`cache_prompt`, `options.num_ctx`, ...). `model`: None for the run's model.
    `seed` None leaves the field out. `label`: a few words for artifacts, e.g. "8k, second time".
    """

    prompt: str | None = None
    messages: tuple[Message, ...] = ()
    max_tokens: int = 16
    stream: bool = True
    logprobs: int = 0
    temperature: float = 0.0
    seed: int | None = 1
    stop: tuple[str, ...] = ()
    model: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    label: str = ""

    @property
    def text(self) -> str:
        """Everything the prompt says, roles left out: what two asks' common beginning is sought in."""
        return self.prompt if self.prompt is not None else "\n".join(m.content for m in self.messages)


@dataclass(frozen=True)
class Event:
    """One event of a stream. `at_s`: seconds since the request was sent. `data`: its payload as it came
    (an SSE comment keeps its colon)."""

    at_s: float
    data: str


@dataclass(frozen=True)
class Score:
    """A token of the reply with its natural log-probability, and the likeliest alternatives by token."""

    token: str
    logprob: float
    top: Mapping[str, float] = field(default_factory=dict)


class FailureKind(StrEnum):
    """How a request failed. CANCELLED is what the harness did itself, never the server's fault."""

    UNREACHABLE = "unreachable"
    REFUSED = "refused"
    """Status 4xx: the server says no, and why."""
    SERVER_ERROR = "server_error"
    """Status 5xx, or an error object inside a stream."""
    HUNG = "hung"
    """Nothing came for as long as the harness waits."""
    DROPPED = "dropped"
    """The connection ended before the reply did."""
    BROKEN = "broken"
    """Bytes came that are not the wire's format."""
    CANCELLED = "cancelled"


@dataclass(frozen=True)
class Failure:
    """`detail`: one line in plain words, with the server's own message where it gave one."""

    kind: FailureKind
    detail: str
    status: int | None = None


@dataclass(frozen=True)
class Counters:
    """Numbers of a server that only rise, as its metrics or statistics have them; None: it has none.

    `read_tokens`: prompt tokens computed. `reused_tokens`: prompt tokens taken from a cache.
    `ssd_loaded_entries`: cache entries taken from disk; `ssd_read_bytes`: bytes of them. `evictions`: of
    cache entries. `drafted`, `accepted`: speculative tokens.
    `requests`: replies given. `all`: every number found, by the server's own name.
    """

    read_tokens: float | None = None
    reused_tokens: float | None = None
    prompt_tokens: float | None = None
    """Prompt tokens in all, for servers that count these and not the part computed."""
    requests: float | None = None
    ssd_loaded_entries: float | None = None
    ssd_read_bytes: float | None = None
    evictions: float | None = None
    drafted: float | None = None
    accepted: float | None = None
    all: Mapping[str, float] = field(default_factory=dict)

    @property
    def from_ssd(self) -> bool | None:
        """Whether anything came from disk; None where neither entries nor bytes are counted."""
        known = [one for one in (self.ssd_loaded_entries, self.ssd_read_bytes) if one is not None]
        return any(one > 0 for one in known) if known else None

    def since(self, before: Counters) -> Counters:
        """What was added since `before`; None where either is unknown. A fall (restart) gives a negative
        number."""

        def rise(name: str) -> float | None:
            now, then = getattr(self, name), getattr(before, name)
            return None if now is None or then is None else now - then

        names = [name for name in self.__dataclass_fields__ if name != "all"]
        risen = {key: value - before.all[key] for key, value in self.all.items() if key in before.all}
        return Counters(**{name: rise(name) for name in names}, all=risen)


@dataclass(frozen=True)
class Exchange:
    """One request and everything that came of it. Sending never raises; `failure` says what went wrong.

    Times are seconds since the request was sent. `first_token_s`: the first token that says something:
    keep-alives, role frames and empty deltas do not count; for a reply that is not streamed, None.
    `reused`: prompt tokens the server says it took from its cache (None: it does not say).
    `prompt_tokens`: of the whole prompt, cached ones included. `server_prompt_s`, `server_decode_s`:
    durations the server states. `drafted`, `accepted`: speculative tokens of this reply.
    `warnings`: what the reply names as ignored or changed. `usage`: the reply's own numbers as they came.
    `counters`: what the server's counters rose by during this exchange; None where it has none, or
    other requests ran at the same time.
    """

    case: str
    ask: Ask
    started: float
    """Unix time."""
    total_s: float
    status: int | None = None
    raw: bytes = b""
    request_body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    events: tuple[Event, ...] = ()
    first_token_s: float | None = None
    text: str = ""
    reasoning: str = ""
    finish: str | None = None
    scores: tuple[Score, ...] = ()
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    reused: int | None = None
    server_prompt_s: float | None = None
    server_decode_s: float | None = None
    drafted: int | None = None
    accepted: int | None = None
    warnings: tuple[str, ...] = ()
    usage: Mapping[str, Any] = field(default_factory=dict)
    counters: Counters | None = None
    failure: Failure | None = None

    @property
    def ok(self) -> bool:
        """A whole reply came. Its text may still be empty."""
        return self.failure is None

    @property
    def answer(self) -> str:
        """What the model said, thinking left out."""
        return self.text.strip()

    @property
    def waited_s(self) -> float:
        """Time to the first token where it is known, else to the end."""
        return self.total_s if self.first_token_s is None else self.first_token_s

    @property
    def uncached(self) -> int | None:
        """Prompt tokens that were read, by what the server says; None where it does not say."""
        if self.reused is None or self.prompt_tokens is None:
            return None
        return self.prompt_tokens - self.reused
