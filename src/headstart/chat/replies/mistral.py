"""Mistral: `[TOOL_CALLS][{...}, {...}]`, and since 2025 `[TOOL_CALLS]NAME[ARGS]{...}` for each call."""

from __future__ import annotations

from headstart.chat.replies.json_text import json_call, object_after
from headstart.chat.replies.reading import CallWriter, MalformedError, Steps, space, until

BEGIN = "[TOOL_CALLS]"


def read(calls: CallWriter) -> Steps[None]:
    """One call, or a list of them, after its marker."""
    first = yield from space()
    if first == "[":
        yield from _listed(calls)
    elif first == "{":
        yield from json_call(calls)
    else:
        name = yield from until("[ARGS]", first, limit=512)
        calls_name = name.partition("[CALL_ID]")[0].strip()
        c = yield from space()
        if c == "{":
            calls.start(calls_name)
        yield from object_after(c, calls.arguments)
        calls.end()


def _listed(calls: CallWriter) -> Steps[None]:
    while True:
        if (yield from space()) != "{":
            raise MalformedError("its JSON is broken")
        yield from json_call(calls)
        c = yield from space()
        if c == "]":
            calls.settle()
            return
        if c != ",":
            raise MalformedError("its JSON is broken")
