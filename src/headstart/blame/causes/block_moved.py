"""A block that stands somewhere else."""

from __future__ import annotations

from dataclasses import replace

from headstart.blame.causes.context import Context, found, short, sides
from headstart.blame.causes.reminder_removed import MARK
from headstart.blame.diff import key, replaced, taken_out
from headstart.blame.finding import Change, Finding, Fix
from headstart.blame.prompt import Kind, Piece

CODE = "BLOCK_MOVED"
PLAIN = (
    "A reminder, a list or a file is taken from where it stood and put somewhere else, often so that it is "
    "always last. What was read behind its old place has to be read again."
)
FIX = Fix("Leave a block where it was first sent and add a new one at the end when it changes.")
_LEAST_CHARS = 24


def detect(change: Change | None, context: Context) -> Finding | None:
    if change is None:
        return None
    moved = _piece_moved(change) or _part_moved(change)
    if moved is None:
        return None
    old, new, text = moved
    fix = replace(FIX, repair="reminder") if MARK.search(text) else FIX
    return found(CODE, change, context, f"a block moved from {old} to {new}: {short(text)}", fix)


def _piece_moved(change: Change) -> tuple[str, str, str] | None:
    """The piece that stood there stands later now, and what follows did not only make room for new text."""
    before, after = change.before, change.after
    if before is None or after is None or before.kind is Kind.TOOL or not before.text:
        return None
    left = change.index_before if change.index_before is not None else change.index
    old, new = change.before_prompt.pieces[left:], change.after_prompt.pieces[change.index :]
    later = _find(new, before)
    if later is None:
        return None
    swapped = _find(old, after) is not None
    if swapped or _tail(old, new[later:]):
        return before.path, new[later].path, before.text
    return None


def _tail(old: tuple[Piece, ...], new: tuple[Piece, ...]) -> bool:
    """Whether the pieces that ended the prompt before end it again: they are always sent last."""
    return [key(piece) for piece in old] == [key(piece) for piece in new]


def _part_moved(change: Change) -> tuple[str, str, str] | None:
    """A part of a text, or a whole block, is gone there and stands in a later piece."""
    before = change.before
    if before is None or before.kind is Kind.TOOL:
        return None
    at = sides(change)
    gone = taken_out(at.before, at.after) or replaced(at.before, at.after)[1] if at else before.text
    gone = gone.strip()
    if len(gone) < _LEAST_CHARS:
        return None
    later = change.after_prompt.pieces[change.index + 1 :]
    known = {key(piece) for piece in change.before_prompt.pieces}
    for piece in later:
        if gone in piece.text and key(piece) not in known:
            return before.path, piece.path, gone
    return None


def _find(pieces: tuple[Piece, ...], wanted: Piece) -> int | None:
    name = key(wanted)
    return next((index for index, piece in enumerate(pieces) if index and key(piece) == name), None)
