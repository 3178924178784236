"""Old turns or tool results that the client cut out or put into a summary."""

from __future__ import annotations

import re

from headstart.blame.causes.context import Context, Sides, found, short, sides
from headstart.blame.diff import Edits, edits, replaced
from headstart.blame.finding import Change, Finding, Fix
from headstart.blame.prompt import Kind

CODE = "PRUNED_OR_COMPACTED"
PLAIN = (
    "To save room the client cut old tool results or turns out of the conversation, or replaced it by a "
    "summary. What follows the first cut is read again; if that happens often, it costs more than it "
    "saves."
)
FIX = Fix(
    "Let it happen seldom and much at once: give the client the true context length. Names seen in the "
    "clients: OPENCODE_DISABLE_PRUNE and OPENCODE_DISABLE_AUTOCOMPACT, DISABLE_AUTO_COMPACT and "
    "CLAUDE_CODE_AUTO_COMPACT_WINDOW (Claude Code), model_auto_compact_token_limit (codex), "
    "--max-chat-history-tokens (aider). What they take was not tried."
)
_STUB = re.compile(
    r"clear|prun|omit|truncat|compact|removed|elided|outdated|superseded|no longer|stripped|\.\.\.|…",
    re.IGNORECASE,
)
_STUB_CHARS = 400
_SAME_CHARS = 20


def detect(change: Change | None, context: Context) -> Finding | None:
    if change is None or change.before is None or change.before.kind is Kind.TOOL:
        return None
    what = _stub(change) or _fewer(change, edits(change))
    return found(CODE, change, context, what, FIX) if what else None


def _stub(change: Change) -> str:
    at = sides(change)
    if at is None or at.kind not in (Kind.RESULT, Kind.TEXT, Kind.CALL):
        return ""
    if at.char >= _SAME_CHARS and _cut(at):
        return f"a text was cut from {len(at.before):,} to {len(at.after):,} characters"
    shorter = len(at.after) < 0.6 * len(at.before)
    if shorter and len(at.after) <= _STUB_CHARS and (_STUB.search(at.after) or not at.after.strip()):
        return f"{len(at.before):,} characters were replaced by {short(at.after) or 'nothing'}"
    return ""


def _cut(at: Sides) -> bool:
    """Whether a result only lost its end, or its middle, and says so."""
    if at.kind is not Kind.RESULT or len(at.after) >= len(at.before):
        return False
    _, _, come = replaced(at.before, at.after)
    return len(come) <= _STUB_CHARS and bool(_STUB.search(come))


def _fewer(change: Change, what: Edits) -> str:
    """Turns are missing: more was taken out than put in their place."""
    gone = [piece for piece in what.removed if piece.kind is not Kind.SYSTEM]
    come = [*what.inserted, *what.appended]
    chars, others = (sum(len(piece.text) for piece in pieces) for pieces in (gone, come))
    messages = {piece.message for piece in gone}
    if change.before is not None and change.before.kind is Kind.SYSTEM and change.before.message is None:
        return ""
    if len(messages) < 2 and what.kept == 0:
        return ""
    fewer = len(change.after_prompt.pieces) < len(change.before_prompt.pieces)
    if fewer and gone and (what.kept or others < 0.6 * chars):
        return f"{_count(len(messages))} with {chars:,} characters were taken out"
    if gone and what.kept and not what.inserted and len(messages) >= 1 and change.before in gone:
        return f"{_count(len(messages))} with {chars:,} characters were taken out"
    return ""


def _count(messages: int) -> str:
    return "1 message" if messages == 1 else f"{messages} messages"
