"""What the readers of call formats share: reading a character at a time, and telling what was read.

A reader is a generator that is sent one character after another. It therefore cannot depend on how
the text was cut into pieces, and it never knows more than the characters it has seen.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Generator, Mapping
from typing import Any, TypeVar

from headstart.chat.replies.events import ArgumentsDelta, CallEnd, CallStart, Event

Got = TypeVar("Got")
Steps = Generator[None, str, Got]
_NAME = re.compile(r"[\w.:/-]{1,128}")
SPACE = " \t\r\n"


class MalformedError(Exception):
    """What was read is no call. `quiet`: it never claimed to be one, so nobody need be told."""

    def __init__(self, why: str, *, quiet: bool = False) -> None:
        super().__init__(why)
        self.quiet = quiet


class CallWriter:
    """Where a reader puts what it finds. `raw` is what was read since the last complete call.

    `tools`: the schema of each offered tool's arguments by its name. With `hold`, nothing of a call
    is told before all of it is there.
    """

    def __init__(self, tools: Mapping[str, Any], new_id: Callable[[], str], *, hold: bool) -> None:
        self.tools = tools
        self.raw = ""
        self.count = 0
        self._at = 0
        self.warnings: list[str] = []
        self._new_id = new_id
        self._hold = hold
        self._ready: list[Event] = []
        self._pending: list[Event] = []
        self._name: str | None = None

    def start(self, name: str) -> None:
        """A call of `name` begins. Raises MalformedError where that cannot be a tool's name."""
        if not _NAME.fullmatch(name):
            raise MalformedError("its tool has no name")
        self._name = name
        self._tell(CallStart(self.count, self._new_id(), name))

    def arguments(self, text: str) -> None:
        if text:
            self._tell(ArgumentsDelta(self.count, text))

    def end(self) -> None:
        """The call is complete, and what was read of it needs no longer be kept."""
        if self._name is not None and self._name not in self.tools:
            self.warnings.append(f"the model called {self._name}, a tool that was not offered")
        self._tell(CallEnd(self.count))
        self._ready += self._pending
        self.count += 1
        self._forget()

    def whole(self, name: str, arguments: str) -> None:
        self.start(name)
        self.arguments(arguments)
        self.end()

    def open(self, marker: str) -> None:
        """A marker was found: `marker` and what stood before it unsaid."""
        self.raw, self._at = marker, self.count

    def settle(self) -> None:
        """What was read so far is markup that is done with; not so where it holds no call."""
        if self.count > self._at:
            self.raw = ""

    def give_up(self) -> str:
        """The text of a call that is none; a call whose start was told already has no end."""
        raw = self.raw
        self.count += self._name is not None and not self._hold
        self._forget()
        return raw

    def take(self) -> list[Event]:
        ready, self._ready = self._ready, []
        return ready

    def _forget(self) -> None:
        self.raw, self._name, self._pending = "", None, []

    def _tell(self, event: Event) -> None:
        (self._pending if self._hold else self._ready).append(event)


Read = Callable[[CallWriter], Steps[None]]


def space() -> Steps[str]:
    """The first character that is no blank."""
    while (c := (yield)) in SPACE:
        pass
    return c


def literal(text: str, first: str = "") -> Steps[None]:
    """Exactly `text`, of which `first` has been read."""
    if not text.startswith(first):
        raise MalformedError(f"{text} was expected")
    for wanted in text[len(first) :]:
        if (yield) != wanted:
            raise MalformedError(f"{text} was expected")


def until(marker: str, first: str = "", *, limit: int = 4096) -> Steps[str]:
    """What stands before `marker`, which is read too."""
    text = first
    while not text.endswith(marker):
        text += yield
        if len(text) > limit:
            raise MalformedError(f"{marker} was expected")
    return text[: -len(marker)]


def string() -> Steps[str]:
    """A JSON string whose opening quote has been read."""
    text = '"'
    while True:
        c = yield
        text += c
        if c == "\\":
            text += yield
        elif c == '"':
            break
    try:
        return str(json.loads(text, strict=False))
    except ValueError:
        raise MalformedError("a JSON string in it is broken") from None
