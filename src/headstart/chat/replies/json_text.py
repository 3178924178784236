"""JSON as a model writes it: checked a character at a time, without recursion, and passed on."""

from __future__ import annotations

import json
import re
from collections.abc import Callable

from headstart.chat.replies.reading import SPACE, CallWriter, MalformedError, Steps, space, string

_NUMBER = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?")
_WORDS = ("true", "false", "null")
_BARE = frozenset("+-.0123456789abcdefghijklmnopqrstuvwxyzE")
MAX_DEPTH = 256
_ARGUMENTS = ("arguments", "parameters")


class JsonScanner:
    """Follows one object or array. `step` takes its characters, the opening bracket first."""

    def __init__(self) -> None:
        self._open: list[str] = []
        self._expects = "value"
        self._word = ""
        self._quoted = False
        self._escaped = False
        self._hex = 0

    def step(self, c: str) -> tuple[str, bool]:
        """What `c` stands for in valid JSON (a bare line break in a string gets escaped), and whether
        the value is complete. Raises MalformedError."""
        if self._quoted:
            return self._in_string(c), False
        if self._word and c in _BARE:
            self._word += c
            return c, False
        if self._word:
            self._end_word()
        if c not in SPACE:
            self._structure(c)
        return c, not self._open and self._expects == "next"

    def _in_string(self, c: str) -> str:
        if self._hex:
            if c not in "0123456789abcdefABCDEF":
                raise MalformedError("its JSON has a broken escape")
            self._hex -= 1
        elif self._escaped:
            if c not in '"\\/bfnrtu':
                raise MalformedError("its JSON has a broken escape")
            self._escaped, self._hex = False, 4 * (c == "u")
        elif c == "\\":
            self._escaped = True
        elif c == '"':
            self._quoted = False
            self._expects = "colon" if self._expects in ("key", "first key") else "next"
        elif c < " ":
            return json.dumps(c)[1:-1]
        return c

    def _end_word(self) -> None:
        if self._word not in _WORDS and not _NUMBER.fullmatch(self._word):
            raise MalformedError("its JSON has a broken value")
        self._word, self._expects = "", "next"

    def _structure(self, c: str) -> None:
        expects = self._expects
        values = expects in ("value", "first value")
        if c == '"' and expects not in ("colon", "next"):
            self._quoted = True
        elif c == ":" and expects == "colon":
            self._expects = "value"
        elif c == "," and expects == "next" and self._open:
            self._expects = "key" if self._open[-1] == "{" else "value"
        elif c in "{[" and values:
            self._open.append(c)
            if len(self._open) > MAX_DEPTH:
                raise MalformedError(f"its JSON is nested deeper than {MAX_DEPTH}")
            self._expects = "first key" if c == "{" else "first value"
        elif self._open and (self._open[-1], c, expects in _MAY_CLOSE[self._open[-1]]) in _CLOSES:
            self._open.pop()
            self._expects = "next"
        elif c in _BARE and values:
            self._word = c
        else:
            raise MalformedError("its JSON is broken")


_MAY_CLOSE = {"{": ("first key", "next"), "[": ("first value", "next")}
_CLOSES = frozenset({("{", "}", True), ("[", "]", True)})


def container(first: str, out: Callable[[str], None]) -> Steps[None]:
    """One object or array that begins with `first`, passed on as it comes."""
    scanner = JsonScanner()
    text, done = scanner.step(first)
    out(text)
    while not done:
        text, done = scanner.step((yield))
        out(text)


def object_after(first: str, out: Callable[[str], None]) -> Steps[None]:
    if first != "{":
        raise MalformedError("its arguments are no JSON object")
    yield from container(first, out)


class _Found:
    """What is known of a call that is written as a JSON object."""

    def __init__(self, calls: CallWriter, name: str | None) -> None:
        self.calls = calls
        self.name = name
        self.buffer = ""
        self.started = False

    def begin(self) -> Callable[[str], None]:
        """Where the arguments go that come next."""
        if self.started or self.buffer:
            raise MalformedError("it has arguments twice")
        if self.name is None:
            return self._keep
        self.calls.start(self.name)
        self.started = True
        return self.calls.arguments

    def _keep(self, text: str) -> None:
        self.buffer += text

    def close(self) -> None:
        if self.name is None:
            raise MalformedError("its tool has no name")
        if not self.started:
            self.calls.start(self.name)
            self.calls.arguments(self.buffer or "{}")
        self.calls.end()


def _drop(text: str) -> None:
    """Passed over."""


def json_call(calls: CallWriter, *, name: str | None = None) -> Steps[None]:
    """`{"name": ..., "arguments": {...}}`, its opening brace read, and its `name` where that is given."""
    found = _Found(calls, name)
    yield from _members(found, 0)
    found.close()


def _members(found: _Found, depth: int) -> Steps[None]:
    c = yield from space()
    while True:
        if c != '"':
            raise MalformedError("its JSON is broken")
        key = yield from string()
        if (yield from space()) != ":":
            raise MalformedError("its JSON is broken")
        c = yield from space()
        after = yield from _member(found, key, c, depth)
        c = after if after and after not in SPACE else (yield from space())
        if c == "}":
            return
        if c != ",":
            raise MalformedError("its JSON is broken")
        c = yield from space()


def _member(found: _Found, key: str, c: str, depth: int) -> Steps[str]:
    """One value; returns the character after it where that had to be read."""
    if key == "name" and c == '"':
        found.name = yield from string()
        return ""
    if key in _ARGUMENTS and c == "{":
        yield from container(c, found.begin())
        return ""
    if key in _ARGUMENTS and c == '"':
        text = yield from string()
        _check_object(text)
        found.begin()(text)
        return ""
    if key == "function" and c == "{" and not depth:
        yield from _members(found, 1)
        return ""
    if key in ("name", *_ARGUMENTS) and c != "n":
        raise MalformedError(f"its {key} is of the wrong type")
    return (yield from _skip(c))


def _check_object(text: str) -> None:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise MalformedError("its arguments are no JSON object")


def _skip(c: str) -> Steps[str]:
    if c == '"':
        yield from string()
        return ""
    if c in "{[":
        yield from container(c, _drop)
        return ""
    word = c
    while (c := (yield)) in _BARE:
        word += c
    if word not in _WORDS and not _NUMBER.fullmatch(word):
        raise MalformedError("its JSON has a broken value")
    return c
