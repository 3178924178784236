"""A marker that says how many tokens are left."""

from __future__ import annotations

import re

from headstart.blame.causes.context import Context, found, line_at, short, sides
from headstart.blame.diff import replaced
from headstart.blame.finding import Change, Finding, Fix

CODE = "TOKEN_BUDGET"
PLAIN = (
    "The client writes into the prompt how many tokens are left. That number falls with every turn, so where "
    "an older marker is written anew, everything behind it is read again."
)
FIX = Fix(
    "Let the client write the marker into its newest message only and leave older ones as they were sent. "
    "In Claude Code's program the variable CLAUDE_CODE_TOTAL_TOKENS_REMINDER is named for this; what it "
    "takes was not tried."
)
_MARK = re.compile(
    r"total_tokens|tokens?[ _](?:left|remaining|budget)|(?:remaining|left)[ _]tokens?|token[ _]budget"
    r"|context (?:left|remaining|window used)",
    re.IGNORECASE,
)
_REACH = 80


def detect(change: Change | None, context: Context) -> Finding | None:
    at = sides(change) if change else None
    if change is None or at is None:
        return None
    before, after = at.lines
    near = [_near(line_at(text, at.char), text, at.char) for text in (at.before, at.after)]
    if _MARK.search(near[0]) and _MARK.search(near[1]) and _masked(before) == _masked(after):
        said = f"the tokens left changed: {short(before)} -> {short(after)}"
        return found(CODE, change, context, said, FIX)
    _, gone, come = replaced(at.before, at.after)
    marked = [text for text in (gone, come) if len(text) < 4 * _REACH and _MARK.search(text)]
    if not marked or (gone.strip() and come.strip() and _masked(gone) != _masked(come)):
        return None
    said = f"an older tokens-left marker changed: {short(gone) or 'none'} -> {short(come) or 'none'}"
    return found(CODE, change, context, said, FIX)


def _near(line: str, text: str, char: int) -> str:
    return line if len(line) <= 2 * _REACH else text[max(0, char - _REACH) : char + _REACH]


def _masked(text: str) -> str:
    return re.sub(r"\d[\d,._]*", "#", text)
