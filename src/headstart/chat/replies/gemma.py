"""FunctionGemma and Gemma 4: `call:NAME{key:VALUE,...}` between markers, with strings in quote marks
of their own (`<escape>` or `<|"|>`) and keys without quotes."""

from __future__ import annotations

import json
from collections.abc import Callable

from headstart.chat.replies.json_text import MAX_DEPTH
from headstart.chat.replies.reading import (
    SPACE,
    CallWriter,
    MalformedError,
    Read,
    Steps,
    literal,
    space,
    until,
)
from headstart.chat.replies.values import json_text

_PLAIN_END = frozenset(",}]" + SPACE)


def reader(quote: str, end: str) -> Read:
    """A reader of calls that `end` closes and whose strings stand between two `quote`."""

    def read(calls: CallWriter) -> Steps[None]:
        yield from literal("call:", (yield from space()))
        name = yield from until("{", limit=256)
        calls.start(name.strip())
        yield from _container("{", quote, calls.arguments)
        calls.end()
        yield from literal(end, (yield from space()))
        calls.settle()

    return read


def _container(first: str, quote: str, out: Callable[[str], None]) -> Steps[None]:
    """An object or array, its bracket read, passed on as JSON; without recursion."""
    out(first)
    opened, fresh, c = first, True, ""
    while opened:
        c = c if c and c not in SPACE else (yield from space())
        if c == ("}" if opened[-1] == "{" else "]"):
            out(c)
            opened, fresh, c = opened[:-1], False, ""
            continue
        if not fresh:
            if c != ",":
                raise MalformedError("its arguments are broken")
            out(", ")
            c = yield from space()
        if opened[-1] == "{":
            out(json_text((yield from _key(c, quote))) + ": ")
            c = yield from space()
        if c in "{[":
            opened += c
            if len(opened) > MAX_DEPTH:
                raise MalformedError(f"its arguments are nested deeper than {MAX_DEPTH}")
            out(c)
            fresh, c = True, ""
        else:
            fresh, c = False, (yield from _scalar(c, quote, out))


def _key(first: str, quote: str) -> Steps[str]:
    if first == quote[0]:
        yield from literal(quote, first)
        key = yield from until(quote, limit=512)
        yield from literal(":", (yield from space()))
        return key
    return (yield from until(":", first, limit=512)).strip()


def _scalar(c: str, quote: str, out: Callable[[str], None]) -> Steps[str]:
    """One value; returns the character after it where that had to be read."""
    if c == quote[0]:
        yield from literal(quote, c)
        yield from _text(quote, out)
        return ""
    word = ""
    while c not in _PLAIN_END:
        word += c
        if len(word) > 64:
            raise MalformedError("its arguments are broken")
        c = yield
    out(_plain(word))
    return c


def _plain(word: str) -> str:
    try:
        value = json.loads(word)
    except ValueError:
        value = ...
    if not isinstance(value, bool | int | float | type(None)):
        raise MalformedError("its arguments hold a value without quotes")
    return json_text(value)


def _text(quote: str, out: Callable[[str], None]) -> Steps[None]:
    out('"')
    held = ""
    while held != quote:
        held += yield
        while held and not quote.startswith(held):
            out(json_text(held[0])[1:-1])
            held = held[1:]
    out('"')
