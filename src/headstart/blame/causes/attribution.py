"""A billing line at the very top of the system prompt that is another for every request or session."""

from __future__ import annotations

from headstart.blame.causes.context import Context, found, line_at, short
from headstart.blame.finding import Change, Finding, Fix
from headstart.blame.prompt import Piece

CODE = "ATTRIBUTION"
PLAIN = (
    "Claude Code puts a billing line first in the system prompt. Its check digits follow what is in the "
    "request, so everything behind that line is read again, which is nearly all of the prompt."
)
FIX = Fix(
    "Switch the billing line off in Claude Code's environment.",
    "CLAUDE_CODE_ATTRIBUTION_HEADER=0",
    "billing",
)
MARK = "x-anthropic-billing-header:"


def detect(change: Change | None, context: Context) -> Finding | None:
    if change is None:
        return None
    before, after = _line(change.before, change.char), _line(change.after, change.char)
    if MARK not in before and MARK not in after:
        return None
    said = f"the billing line changed: {short(before, 90) or 'none'} -> {short(after, 90) or 'none'}"
    return found(CODE, change, context, said, FIX)


def _line(piece: Piece | None, char: int) -> str:
    return line_at(piece.text, char) if piece else ""
