"""Calls written as Python: `[f(a=1), g()]` as Llama 3.2 and 4 do, or in Gemma 3's `tool_code` fence.

Arguments are told one by one as they are complete. Only literals are read; nothing is run.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Callable
from typing import Any

from headstart.chat.replies.reading import CallWriter, MalformedError, Steps, literal, space
from headstart.chat.replies.values import json_text

FENCE = "```tool_code"
_NAMES = {"true": True, "false": False, "null": None}
_CLOSES = {")": "(", "]": "[", "}": "{"}


def listed(calls: CallWriter) -> Steps[None]:
    """`f(a=1), g()]` after the bracket. Nothing marks it, so every name must be an offered tool's."""
    yield from _calls(calls, (yield from space()), "]", lambda text: _prefix(text, calls))


def fenced(calls: CallWriter) -> Steps[None]:
    """One call a line, or a list of them, up to the closing fence; `print(...)` is not looked into."""
    c = yield from space()
    if c == "[":
        yield from _calls(calls, (yield from space()), "]", _any)
        c = yield from space()
    else:
        c = yield from _lines(calls, c)
    yield from literal("```", c)
    calls.settle()


def _any(text: str) -> bool:
    return True


def _prefix(text: str, calls: CallWriter) -> bool:
    return any(name.startswith(text) for name in calls.tools)


def _lines(calls: CallWriter, c: str) -> Steps[str]:
    while c != "`":
        yield from _one(calls, c, _any)
        c = yield from space()
    return c


def _calls(calls: CallWriter, c: str, end: str, known: Callable[[str], bool]) -> Steps[None]:
    while True:
        yield from _one(calls, c, known)
        c = yield from space()
        if c == end:
            calls.settle()
            return
        if c != ",":
            raise MalformedError(f", or {end} was expected")
        c = yield from space()


def _one(calls: CallWriter, first: str, known: Callable[[str], bool]) -> Steps[None]:
    name, c = "", first
    while c != "(":
        name += c
        if not known(name):
            raise MalformedError("", quiet=True)
        if c in "[]{}'\"=\n" or len(name) > 128:
            raise MalformedError("its tool has no name")
        c = yield
    if known is not _any and name not in calls.tools:
        raise MalformedError("", quiet=True)
    calls.start(name)
    names: set[str] = set()
    while True:
        text, closing = yield from _argument()
        if text.strip():
            key, value = _keyword(text)
            if key in names:
                raise MalformedError(f"it has the argument {key} twice")
            calls.arguments((", " if names else "{") + json_text(key) + ": " + value)
            names.add(key)
        elif not closing:
            raise MalformedError("an argument is missing")
        if closing:
            break
    calls.arguments("}" if names else "{}")
    calls.end()


class _Literal:
    """Where in Python's source a place is: in which string, inside how many brackets."""

    def __init__(self) -> None:
        self.opened = ""
        self.quote = ""
        self._run = ""
        self._escaped = False

    @property
    def plain(self) -> bool:
        """Outside of strings and brackets."""
        return not (self.opened or self.quote)

    def step(self, c: str) -> None:
        """Takes the next character. Raises MalformedError where brackets do not match."""
        if self._escaped:
            self._escaped = False
        elif self.quote:
            self._run = self._run + c if c == self.quote[0] else ""
            self._escaped = c == "\\"
            if self._run == self.quote:
                self.quote, self._run = "", self.quote if len(self.quote) == 1 else ""
        elif self._run == c:
            self.quote, self._run = c * 3, ""
        else:
            self._run = ""
            self._outside(c)

    def _outside(self, c: str) -> None:
        if c in "'\"":
            self.quote = c
        elif c in "([{":
            self.opened += c
        elif c in _CLOSES:
            if self.opened[-1:] != _CLOSES[c]:
                raise MalformedError("its brackets do not match")
            self.opened = self.opened[:-1]


def _argument() -> Steps[tuple[str, bool]]:
    """The text of one argument, and whether the call's closing bracket stood after it."""
    text, place = "", _Literal()
    while True:
        c = yield
        if place.plain and c in ",)":
            return text, c == ")"
        place.step(c)
        text += c


def _keyword(text: str) -> tuple[str, str]:
    """An argument's name and its value as JSON text. Raises MalformedError."""
    try:
        tree = ast.parse(f"f({text.strip()})", mode="eval").body
        assert isinstance(tree, ast.Call)
        [keyword] = tree.keywords
        if tree.args or keyword.arg is None:
            raise ValueError
        return keyword.arg, json.dumps(_literal(keyword.value), ensure_ascii=False, allow_nan=False)
    except (ValueError, TypeError, SyntaxError, AssertionError, RecursionError, MemoryError):
        raise MalformedError("an argument is no NAME=VALUE with a plain value") from None


def _literal(node: ast.expr) -> Any:
    match node:
        case ast.Name(id=name) if name in _NAMES:
            return _NAMES[name]
        case ast.List(elts=parts) | ast.Tuple(elts=parts):
            return [_literal(part) for part in parts]
        case ast.Dict(keys=keys, values=values):
            return {_key(key): _literal(value) for key, value in zip(keys, values, strict=True)}
    return ast.literal_eval(node)


def _key(node: ast.expr | None) -> str:
    key = None if node is None else ast.literal_eval(node)
    if not isinstance(key, str):
        raise ValueError
    return key
