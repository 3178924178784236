"""Hermes and Qwen: `<tool_call>{"name": ..., "arguments": {...}}</tool_call>`, one call in each."""

from __future__ import annotations

from headstart.chat.replies.json_text import json_call
from headstart.chat.replies.reading import CallWriter, MalformedError, Steps, literal, space

BEGIN = "<tool_call>"
END = "</tool_call>"


def read(calls: CallWriter) -> Steps[None]:
    """A call whose begin marker has been read."""
    if (yield from space()) != "{":
        raise MalformedError("its JSON is broken")
    yield from json_call(calls)
    first = yield from space()
    yield from literal(END, first)
    calls.settle()
