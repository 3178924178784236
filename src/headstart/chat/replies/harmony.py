"""gpt-oss: a reply in channels. `analysis` holds thoughts, `final` and `commentary` text, and a
message `to=functions.NAME` is a call with its arguments as JSON.

`<|channel|>NAME to=... <|constrain|>json<|message|>BODY`, ended by `<|end|>`, `<|call|>` or `<|return|>`;
the next message begins with `<|start|>assistant`. The end of the reply ends a message too.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from headstart.chat.replies.events import Event, TextDelta, ThinkingDelta
from headstart.chat.replies.json_text import object_after
from headstart.chat.replies.reading import CallWriter, MalformedError, Steps, space

START, CHANNEL, MESSAGE = "<|start|>", "<|channel|>", "<|message|>"
ENDS = ("<|end|>", "<|call|>", "<|return|>")
MARKERS = (START, CHANNEL, MESSAGE, *ENDS, "<|constrain|>")
_TO = re.compile(r"to=(?:functions\.)?([^\s<]+)")
_HEAD = re.compile(r"(assistant)?(\s+to=\S+)?\s*")
MAX_HEAD_CHARS = 512


class HarmonySplitter:
    """Events of one harmony reply; arguments as for Splitter. The prompt ends with `<|start|>assistant`."""

    def __init__(
        self, tools: Mapping[str, Any], *, hold: bool = False, new_id: Callable[[], str] = str
    ) -> None:
        self._calls = CallWriter(tools, new_id, hold=hold)
        self._tools = tools
        self._state = self._head
        self._text = ""
        self._reader: Steps[None] | None = None

    @property
    def warnings(self) -> list[str]:
        return self._calls.warnings

    def feed(self, text: str) -> list[Event]:
        events: list[Event] = []
        for c in text:
            self._text += c
            self._state(events)
        return events

    def end(self) -> list[Event]:
        events: list[Event] = []
        if self._state == self._call:
            self._close(events, "the reply ended before it")
        elif self._state == self._thought:
            self._tell(events, ThinkingDelta)
        elif self._state == self._said or self._text.strip():
            self._tell(events, TextDelta)
        self._text = ""
        return events

    def _head(self, events: list[Event]) -> None:
        """Between messages, and in what stands before a message's body."""
        if self._text.endswith(MESSAGE):
            self._begin(self._text[: -len(MESSAGE)])
        elif len(self._text) > MAX_HEAD_CHARS or not _may_be_head(self._text):
            self._state = self._said
            self._said(events)

    def _begin(self, head: str) -> None:
        raw = self._text
        self._text = ""
        to = _TO.search(head)
        if to and self._tools:
            self._calls.open(raw)
            self._reader = self._arguments(to.group(1))
            next(self._reader)
            self._state = self._call
        else:
            analysis = CHANNEL + "analysis" in head
            self._state = self._thought if analysis else self._said

    def _arguments(self, name: str) -> Steps[None]:
        c = yield from space()
        if c == "{":
            self._calls.start(name)
        yield from object_after(c, self._calls.arguments)
        self._calls.end()
        yield from space()

    def _call(self, events: list[Event]) -> None:
        c, self._text = self._text, ""
        self._calls.raw += c
        assert self._reader is not None
        try:
            self._reader.send(c)
        except (StopIteration, MalformedError) as error:
            self._text = c
            self._calls.raw = self._calls.raw[:-1]
            self._close(events, str(error))
            self._said(events)
            return
        events += self._calls.take()

    def _close(self, events: list[Event], why: str) -> None:
        """A call is over: complete, or not one at all."""
        events += self._calls.take()
        raw, self._reader, self._state = self._calls.give_up(), None, self._said
        if raw.strip():
            events.append(TextDelta(raw))
            self.warnings.append(f"a tool call could not be read and was given back as text: {why}")

    def _thought(self, events: list[Event]) -> None:
        self._body(events, ThinkingDelta)

    def _said(self, events: list[Event]) -> None:
        self._body(events, TextDelta)

    def _body(self, events: list[Event], kind: type[TextDelta] | type[ThinkingDelta]) -> None:
        ends = (*ENDS, START)
        for marker in ends:
            if self._text.endswith(marker):
                self._text = self._text[: -len(marker)]
                self._tell(events, kind)
                self._state = self._head
                return
        keep = next(
            (at for at in range(len(self._text)) if any(m.startswith(self._text[at:]) for m in ends)),
            len(self._text),
        )
        left, self._text = self._text[keep:], self._text[:keep]
        self._tell(events, kind)
        self._text = left

    def _tell(self, events: list[Event], kind: type[TextDelta] | type[ThinkingDelta]) -> None:
        if self._text:
            events.append(kind(self._text))
        self._text = ""


def _may_be_head(text: str) -> bool:
    """Whether a message's head may begin with `text`: a role and an addressee, then its markers."""
    text = text.removeprefix(START)
    if START.startswith(text) or text.isspace() or "assistant".startswith(text):
        return True
    if CHANNEL in text:
        return True
    before, _, marker = text.partition("<")
    marks = "<" not in text or any(m.startswith("<" + marker) for m in (CHANNEL, MESSAGE))
    return marks and (bool(_HEAD.fullmatch(before)) or " to=".startswith(before.removeprefix("assistant")))
