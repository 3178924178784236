"""A number that drifts in an otherwise equal line."""

from __future__ import annotations

import re

from headstart.blame.causes.context import Context, both, found, short, sides
from headstart.blame.finding import Change, Finding, Fix
from headstart.blame.prompt import Kind

CODE = "COUNTER"
PLAIN = (
    "A count or a share (turns, characters, percent used) stands in a part of the prompt that is sent every "
    "turn. It drifts, so everything behind it is read again."
)
FIX = Fix("Leave the number out, or write it into the newest message only.")
_NUMBER = re.compile(r"\d[\d,._]*%?")
# In what was said or read, a number that differs is content, unless the line counts something.
_COUNTS = re.compile(
    r"%|\b(?:used|left|remaining|chars?|characters|tokens?|turns?|steps?|messages?|count|total|requests?|cost)\b",
    re.IGNORECASE,
)


def detect(change: Change | None, context: Context) -> Finding | None:
    at = sides(change) if change else None
    numbers = both(_NUMBER, at) if at else None
    if change is None or at is None or numbers is None:
        return None
    before, after = at.lines
    if _NUMBER.sub("#", before) != _NUMBER.sub("#", after):
        return None
    if at.kind not in (Kind.SYSTEM, Kind.TOOL) and not _COUNTS.search(after):
        return None
    return found(CODE, change, context, f"a number drifted: {short(before)} -> {short(after)}", FIX)
