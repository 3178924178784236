"""Llama 3's JSON calls: the whole reply is `{"name": ..., "parameters": {...}}`, several parted by `;`.

Nothing marks such a call, so an object is one only where its name is that of an offered tool.
"""

from __future__ import annotations

from headstart.chat.replies.json_text import json_call
from headstart.chat.replies.reading import CallWriter, MalformedError, Steps, literal, space

PYTHON_TAG = "<|python_tag|>"


def marked(calls: CallWriter) -> Steps[None]:
    """After `<|python_tag|>`."""
    if (yield from space()) != "{":
        raise MalformedError("calls of built-in tools are not read")
    yield from json_call(calls)
    yield from _more(calls)


def bare(calls: CallWriter) -> Steps[None]:
    """After an opening brace at the start of the reply."""
    yield from _offered(calls)
    yield from _more(calls)


def _offered(calls: CallWriter) -> Steps[None]:
    """`"name": "TOOL"` first, or `"type": "function"` before it; otherwise this is any other JSON."""
    try:
        yield from _words(calls)
    except MalformedError:
        raise MalformedError("", quiet=True) from None


def _words(calls: CallWriter) -> Steps[None]:
    first = yield from space()
    yield from literal('"', first)
    key = yield from _one_of(("name", "type"))
    yield from literal(":", (yield from space()))
    yield from literal('"', (yield from space()))
    if key == "type":
        yield from literal('function"')
        yield from literal(",", (yield from space()))
        yield from literal('"', (yield from space()))
        yield from literal('name"')
        yield from literal(":", (yield from space()))
        yield from literal('"', (yield from space()))
    name = yield from _one_of(tuple(calls.tools))
    yield from _rest(calls, name)


def _one_of(words: tuple[str, ...]) -> Steps[str]:
    """One of `words` and the quote after it."""
    text = ""
    while True:
        c = yield
        if c == '"' and text in words:
            return text
        text += c
        if not any(word.startswith(text) for word in words):
            raise MalformedError("", quiet=True)


def _rest(calls: CallWriter, name: str) -> Steps[None]:
    """The members after the name, read as those of an object of their own."""
    c = yield from space()
    if c == "}":
        calls.whole(name, "{}")
        return
    if c != ",":
        raise MalformedError("its JSON is broken")
    yield from json_call(calls, name=name)


def _more(calls: CallWriter) -> Steps[None]:
    while True:
        c = yield from space()
        if c in ";,":
            c = yield from space()
        if c != "{":
            raise MalformedError("", quiet=True)
        yield from _offered(calls)
