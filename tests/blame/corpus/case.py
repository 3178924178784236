"""A session with something wrong at one request, and what is to be said of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from headstart.blame.exchange import Exchange


@dataclass(frozen=True)
class Case:
    """`number`: the request to be blamed. `path`: of the piece. `left`: text of that piece as it is now, up
    to the character where it differs; "" where its first one does. `besides`: other causes in the session."""

    name: str
    cause: str
    number: int
    sent: Callable[[], list[Exchange]]
    path: str | None = None
    left: str | None = None
    said: str = ""
    besides: tuple[str, ...] = ()
