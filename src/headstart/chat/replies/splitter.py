"""A reply's text taken apart as it comes: thoughts, text, calls of tools.

Text is held back only while it may be the beginning of a marker. A call that turns out to be none is
given back as text, all of it, with a warning.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from typing import Any

from headstart.chat.replies.events import Event, TextDelta, ThinkingDelta
from headstart.chat.replies.reading import SPACE, CallWriter, MalformedError, Read, Steps
from headstart.chat.replies.syntax import Syntax

_State = Callable[[list[Event]], bool]


class Splitter:
    """Events of one reply. `warnings`: what went wrong in it, a sentence each.

    `tools`: the arguments' schema of each offered tool; with none nothing is read as a call. `thinking`:
    the prompt ended inside the thoughts. `hold`: see CallWriter. `new_id` makes the calls' ids.
    """

    def __init__(
        self,
        syntax: Syntax,
        tools: Mapping[str, Any],
        *,
        thinking: bool = False,
        hold: bool = False,
        new_id: Callable[[], str] | None = None,
    ) -> None:
        self._calls = CallWriter(tools, new_id or _id_maker(syntax.id_chars), hold=hold)
        self._marked: dict[str, Read] = dict(syntax.marked) if tools else {}
        self._at_start: dict[str, Read] = dict(syntax.at_start) if tools else {}
        self._think, self._think_end = syntax.thinking or ("", "")
        self._state: _State = self._thoughts if thinking and self._think else self._start
        self._text = ""
        self._fresh = True
        self._reader: Steps[None] | None = None

    @property
    def warnings(self) -> list[str]:
        return self._calls.warnings

    def feed(self, text: str) -> list[Event]:
        """What `text`, the next piece of the reply, makes certain."""
        events: list[Event] = []
        self._text += text
        while self._state(events):
            pass
        return events

    def end(self) -> list[Event]:
        """What is left at the end of the reply."""
        events: list[Event] = []
        if self._reader is not None:
            self._break_off(MalformedError("the reply ended before it"), events, ended=True)
        thoughts = self._state == self._thoughts
        left, self._text = self._text, ""
        if thoughts:
            left = left.rstrip("\n")
        if left.strip() or (left and not self._after_markup()):
            events.append(ThinkingDelta(left) if thoughts else TextDelta(left))
        return events

    def _after_markup(self) -> bool:
        return self._state in (self._start, self._after_thoughts) and not self._fresh

    def _start(self, events: list[Event]) -> bool:  # noqa: PLR0911 - a case a line
        """Before the first word of the reply, or of what follows thoughts or a call."""
        body = self._text.lstrip(SPACE)
        if self._fresh and not (self._think or self._marked or self._at_start):
            self._go(self._plain)
            return True
        if not body:
            return False
        if self._fresh and self._think:
            if body.startswith(self._think):
                self._text = body[len(self._think) :]
                self._go(self._thoughts)
                return True
            if self._think.startswith(body):
                return False
        for marker, read in self._at_start.items():
            if body.startswith(marker):
                return self._open(marker, read)
            if marker.startswith(body):
                return False
        marker = next((marker for marker in self._marked if body.startswith(marker)), "")
        if marker:
            return self._open(marker, self._marked[marker])
        if any(marker.startswith(body) for marker in self._marked):
            return False
        self._go(self._plain)
        return True

    def _thoughts(self, events: list[Event]) -> bool:
        if self._fresh:
            self._text = self._text.lstrip("\n")
            self._fresh = not self._text
        at = self._text.find(self._think_end)
        if at >= 0:
            thought, self._text = self._text[:at].rstrip("\n"), self._text[at + len(self._think_end) :]
            if thought:
                events.append(ThinkingDelta(thought))
            self._fresh = False
            self._state = self._after_thoughts
            return True
        keep = _possible(self._text, (self._think_end,))
        keep = len(self._text[:keep].rstrip("\n"))
        self._tell(events, ThinkingDelta, keep)
        return False

    def _after_thoughts(self, events: list[Event]) -> bool:
        """Blanks after the thoughts belong to their markup."""
        self._text = self._text.lstrip(SPACE)
        if not self._text:
            return False
        self._state = self._start
        return True

    def _plain(self, events: list[Event]) -> bool:
        found = [(at, marker) for marker in self._marked if (at := self._text.find(marker)) >= 0]
        if found:
            at, marker = min(found)
            self._tell(events, TextDelta, at)
            return self._open(marker, self._marked[marker])
        self._tell(events, TextDelta, _possible(self._text, tuple(self._marked)))
        return False

    def _open(self, marker: str, read: Read) -> bool:
        upto = self._text.index(marker) + len(marker)
        self._calls.open(self._text[:upto])
        self._text = self._text[upto:]
        self._reader = read(self._calls)
        next(self._reader)
        self._fresh = False
        self._state = self._call
        return True

    def _call(self, events: list[Event]) -> bool:
        """Sends the reader what has come, until it is through."""
        assert self._reader is not None
        for at, c in enumerate(self._text):
            self._calls.raw += c
            try:
                self._reader.send(c)
            except StopIteration:
                self._calls.settle()
                self._text = self._text[at + 1 :]
                if self._calls.raw:
                    self._break_off(MalformedError("there is none in it"), events)
                    return True
                self._reader, self._state = None, self._start
                events += self._calls.take()
                return True
            except MalformedError as error:
                self._text = self._text[at:]
                self._calls.raw = self._calls.raw[:-1]
                self._break_off(error, events)
                return True
        self._text = ""
        events += self._calls.take()
        return False

    def _break_off(self, error: MalformedError, events: list[Event], *, ended: bool = False) -> None:
        events += self._calls.take()
        raw = self._calls.give_up()
        self._reader = None
        self._state = self._plain
        if not raw.strip():
            self._text = raw + self._text
            self._state = self._start
            return
        events.append(TextDelta(raw))
        if not error.quiet:
            self.warnings.append(f"a tool call could not be read and was given back as text: {error}")

    def _tell(self, events: list[Event], kind: type[TextDelta] | type[ThinkingDelta], upto: int) -> None:
        if upto:
            events.append(kind(self._text[:upto]))
        self._text = self._text[upto:]

    def _go(self, state: _State) -> None:
        self._fresh = state == self._thoughts
        self._state = state


def _possible(text: str, markers: tuple[str, ...]) -> int:
    """Where the longest end of `text` begins that may be the beginning of a marker."""
    longest = max(map(len, markers), default=1) - 1
    for at in range(max(0, len(text) - longest), len(text)):
        if any(marker.startswith(text[at:]) for marker in markers):
            return at
    return len(text)


def _id_maker(chars: int) -> Callable[[], str]:
    """Ids as OpenAI's look, or of so many letters and digits where a template asks for that."""
    if chars:
        return lambda: secrets.token_hex(chars)[:chars]
    return new_call_id


def new_call_id() -> str:
    """An id as OpenAI's look."""
    return "call_" + secrets.token_hex(12)
