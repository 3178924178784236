"""An exchange while it passes: copies of what went by, up to a limit, and when."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from headstart.blame.exchange import Dialect
from headstart.blame.proxy.wire import Head

RECORDED_BYTES = 32 << 20
"""How much of a request's body, and of a reply's, is kept for the record. All of it is passed on."""


@dataclass
class Passing:
    """`asked`, and the times of `pieces`: seconds on `time.perf_counter`. `error`: what went wrong between
    the two ends. `finished`: the reply came to its end."""

    head: Head
    path: str
    query: str
    dialect: Dialect | None
    limit: int = RECORDED_BYTES
    started: float = field(default_factory=time.time)
    began: float = field(default_factory=time.perf_counter)
    asked: float | None = None
    request: list[bytes] = field(default_factory=list)
    request_bytes: int = 0
    reply_head: Head | None = None
    pieces: list[tuple[bytes, float]] = field(default_factory=list)
    reply_bytes: int = 0
    error: str | None = None
    finished: bool = False
    notes: list[str] = field(default_factory=list)

    def sent(self, piece: bytes) -> None:
        """A piece of the request went out."""
        self.request_bytes += len(piece)
        if self.dialect is not None and self.request_bytes <= self.limit:
            self.request.append(piece)

    def came(self, piece: bytes) -> None:
        """A piece of the reply came in."""
        self.reply_bytes += len(piece)
        if self.dialect is not None and self.reply_bytes <= self.limit:
            self.pieces.append((piece, time.perf_counter()))

    def fail(self, error: str) -> None:
        self.error = self.error or error

    @property
    def kept_bytes(self) -> int:
        """Bytes of both bodies that are kept, at most."""
        return min(self.request_bytes, self.limit) + min(self.reply_bytes, self.limit)

    @property
    def cut(self) -> bool:
        """Whether the request's body is larger than what is kept."""
        return self.request_bytes > self.limit
