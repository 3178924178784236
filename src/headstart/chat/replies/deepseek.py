"""DeepSeek V3, R1 (kind, name, a fenced object) and V3.1 (name, object) between the same markers."""

from __future__ import annotations

from headstart.chat.replies.json_text import object_after
from headstart.chat.replies.reading import CallWriter, MalformedError, Steps, literal, space, until

BEGIN = "<｜tool▁calls▁begin｜>"
END = "<｜tool▁calls▁end｜>"
CALL = "<｜tool▁call▁begin｜>"
CALL_END = "<｜tool▁call▁end｜>"
SEPARATOR = "<｜tool▁sep｜>"


def read(calls: CallWriter) -> Steps[None]:
    """The calls after their first marker."""
    while True:
        text = yield from space()
        while text not in (CALL, END):
            if not (CALL.startswith(text) or END.startswith(text)):
                raise MalformedError(f"{CALL} was expected")
            text += yield
        if text == END:
            calls.settle()
            return
        yield from _call(calls)


def _call(calls: CallWriter) -> Steps[None]:
    name = (yield from until(SEPARATOR, limit=512)).strip()
    c = yield from space()
    fenced = c != "{"
    if fenced:
        name = (yield from until("\n", c, limit=512)).strip()
        yield from literal("```json", (yield from space()))
        c = yield from space()
    if c == "{":
        calls.start(name)
    yield from object_after(c, calls.arguments)
    calls.end()
    c = yield from space()
    if fenced:
        yield from literal("```", c)
        c = yield from space()
    yield from literal(CALL_END, c)
    calls.settle()
