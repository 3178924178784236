"""A reminder of the client that was in an older message and is gone."""

from __future__ import annotations

import re

from headstart.blame.causes.context import Context, found, short, sides
from headstart.blame.diff import edits, replaced
from headstart.blame.finding import Change, Finding, Fix
from headstart.blame.prompt import Kind, Piece

CODE = "REMINDER_REMOVED"
PLAIN = (
    "The client put a reminder of its own into a message and sends that message without it in the next turn. "
    "Everything from there on is read again."
)
FIX = Fix("Leave a reminder in the message it was sent with; add a new one at the end instead.")
MARK = re.compile(
    r"system[-_ ]reminder|<reminder|environment_details|<context[ >_]|\[reminder"
    r"|BEGIN_\w*(?:INTERNAL|CONTEXT)|\breminder:",
    re.IGNORECASE,
)


def detect(change: Change | None, context: Context) -> Finding | None:
    if change is None or change.before is None:
        return None
    text = _part(change) or _whole(change, change.before)
    if not text:
        return None
    return found(CODE, change, context, f"a reminder is gone from {change.before.path}: {short(text)}", FIX)


def _part(change: Change) -> str:
    """A reminder that was part of a text which is otherwise the same, or only stands with another text."""
    at = sides(change)
    if at is None or at.kind is Kind.TOOL:
        return ""
    _, gone, come = replaced(at.before, at.after)
    return gone if MARK.search(gone) and not MARK.search(come) and len(come) < len(gone) else ""


def _whole(change: Change, before: Piece) -> str:
    """A block, or a system message among the others, that is gone altogether."""
    late = before.kind is Kind.SYSTEM and any(
        piece.kind not in (Kind.SYSTEM, Kind.TOOL) for piece in change.before_prompt.pieces[: change.index]
    )
    if not late and not MARK.search(before.text[:400]):
        return ""
    if before.kind not in (Kind.SYSTEM, Kind.TEXT):
        return ""
    return before.text if before in edits(change).removed else ""
