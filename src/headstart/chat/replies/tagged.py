"""Calls whose arguments stand between tags as plain text: Qwen-Coder's XML and GLM 4.5.

A value ends at its closing tag only where the markup goes on after it, so that a value may hold the
tag itself. What a value means is said by the tool's schema.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from headstart.chat.replies.reading import SPACE, CallWriter, MalformedError, Steps, literal, space, until
from headstart.chat.replies.values import is_text, json_text, property_schema, value_of

MAX_NAME_CHARS = 256


class _Arguments:
    """An object's JSON text, written member by member."""

    def __init__(self, calls: CallWriter, name: str) -> None:
        calls.start(name)
        self._calls = calls
        self._schema = calls.tools.get(name, {})
        self._names: set[str] = set()

    def open(self, name: str) -> Any:
        """The schema of the member that comes next."""
        if name in self._names:
            raise MalformedError(f"it has the parameter {name} twice")
        self._calls.arguments(("," if self._names else "{") + (" " if self._names else ""))
        self._calls.arguments(json_text(name) + ": ")
        self._names.add(name)
        return property_schema(self._schema, name)

    def put(self, text: str) -> None:
        self._calls.arguments(text)

    def close(self) -> None:
        self._calls.arguments("}" if self._names else "{}")
        self._calls.end()


def _value(arguments: _Arguments, name: str, tag: str, nexts: Sequence[str], *, lines: bool) -> Steps[str]:
    """One value up to `tag`; returns which of `nexts` stood after it. `lines`: a line break on either
    side of the value belongs to the markup."""
    schema = arguments.open(name)
    streams = is_text(schema)
    ends = re.compile(re.escape(tag) + "[" + SPACE + "]*(" + "|".join(map(re.escape, nexts)) + ")")
    text, sent, first = "", 0, True
    if streams:
        arguments.put('"')
    while True:
        text += yield
        if first and lines and text == "\n":
            text, first = "", False
            continue
        first = False
        found = ends.match(text, max(0, text.rfind(tag))) if text.endswith(tuple(nexts)) else None
        if found:
            value = text[: found.start()]
            value = value[:-1] if lines and value.endswith("\n") and found.start() > sent else value
            arguments.put(json_text(value[sent:])[1:] if streams else json_text(value_of(value, schema)))
            return found.group(1)
        if streams:
            upto = _certain(text, sent, tag, nexts, lines)
            arguments.put(json_text(text[sent:upto])[1:-1])
            text, sent = text[upto:], 0


def _certain(text: str, start: int, tag: str, nexts: Sequence[str], lines: bool) -> int:
    """Up to where `text` surely belongs to the value."""
    for place in range(start, len(text)):
        rest = text[place:]
        if lines and rest.startswith("\n"):
            rest = rest[1:]
        if tag.startswith(rest):
            return place
        if rest.startswith(tag):
            after = rest[len(tag) :].lstrip(SPACE)
            if any(marker.startswith(after) for marker in nexts):
                return place
    return len(text)


def qwen_xml(calls: CallWriter) -> Steps[None]:
    """`<function=NAME><parameter=KEY>VALUE</parameter></function></tool_call>`, `<tool_call>` read."""
    first = yield from space()
    yield from literal("<function=", first)
    yield from _function(calls)
    first = yield from space()
    yield from literal("</tool_call>", first)
    calls.settle()


def qwen_function(calls: CallWriter) -> Steps[None]:
    """The same where the model left `<tool_call>` out; a `</tool_call>` after it is taken along."""
    yield from _function(calls)
    first = yield from space()
    if first != "<":
        raise MalformedError("", quiet=True)
    try:
        yield from literal("</tool_call>", first)
    except MalformedError:
        raise MalformedError("", quiet=True) from None
    calls.settle()


def _function(calls: CallWriter) -> Steps[None]:
    name = yield from until(">", limit=MAX_NAME_CHARS)
    arguments = _Arguments(calls, name.strip())
    nexts = ("<parameter=", "</function>")
    follows = yield from _either(nexts)
    while follows == nexts[0]:
        key = yield from until(">", limit=MAX_NAME_CHARS)
        follows = yield from _value(arguments, key.strip(), "</parameter>", nexts, lines=True)
    arguments.close()


def glm(calls: CallWriter) -> Steps[None]:
    """`NAME<arg_key>KEY</arg_key><arg_value>VALUE</arg_value></tool_call>`, `<tool_call>` read."""
    name = yield from until("<", limit=MAX_NAME_CHARS)
    arguments = _Arguments(calls, name.strip())
    nexts = ("<arg_key>", "</tool_call>")
    follows = yield from _either(nexts, "<")
    while follows == nexts[0]:
        key = yield from until("</arg_key>", limit=MAX_NAME_CHARS)
        first = yield from space()
        yield from literal("<arg_value>", first)
        follows = yield from _value(arguments, key.strip(), "</arg_value>", nexts, lines=False)
    arguments.close()


def _either(markers: Sequence[str], first: str = "") -> Steps[str]:
    """Which of `markers` stands here, blanks before it aside."""
    text = first or (yield from space())
    while True:
        if text in markers:
            return text
        if not any(marker.startswith(text) for marker in markers):
            raise MalformedError(f"{' or '.join(markers)} was expected")
        text += yield
