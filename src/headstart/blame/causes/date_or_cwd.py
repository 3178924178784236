"""Today's date, or the directory the client runs in."""

from __future__ import annotations

import re
from dataclasses import replace

from headstart.blame.causes.clock_words import DATE
from headstart.blame.causes.context import Context, Sides, both, found, short, sides
from headstart.blame.finding import Change, Finding, Fix
from headstart.blame.prompt import Kind

CODE = "DATE_OR_CWD"
PLAIN = (
    "The client writes today's date or its working directory into the system prompt. On another day, or from "
    "another directory, everything behind that line is read again."
)
FIX = Fix("Put date and directory behind everything that stays: into the first user message.")
FREEZE = Fix(
    "Put the date behind everything that stays, into the first user message; where the client cannot, "
    "have that line frozen for the session.",
    repair="date",
)
CLAUDE = Fix(
    "Have Claude Code put date and directory into the messages, behind system prompt and tools.",
    "claude --exclude-dynamic-system-prompt-sections",
    "date",
)
_PATH = re.compile(r"(?:[A-Za-z]:\\|~?/)[^\s\"'`<>|:*?]+(?:[/\\][^\s\"'`<>|:*?]+)*")
_LABEL = re.compile(
    r"director(?:y|ies)|\bcwd\b|workspace|project root|folder|\bpath\b|\bhome\b", re.IGNORECASE
)


def detect(change: Change | None, context: Context) -> Finding | None:
    at = sides(change) if change else None
    if change is None or at is None:
        return None
    if dates := both(DATE, at):
        said = f"the date changed: {short(dates[0])} -> {short(dates[1])}; as written it changes every day"
        freeze = FREEZE if at.kind is Kind.SYSTEM else FIX
        return found(CODE, change, context, said, CLAUDE if context.from_claude else freeze)
    if (paths := both(_PATH, at)) and _is_place(at):
        said = f"the directory changed: {short(paths[0])} -> {short(paths[1])}"
        return found(CODE, change, context, said, replace(CLAUDE, repair="") if context.from_claude else FIX)
    return None


def _is_place(at: Sides) -> bool:
    return at.kind is Kind.SYSTEM or all(_LABEL.search(_PATH.sub("", line)) for line in at.lines)
