"""An older message that is another now."""

from __future__ import annotations

from headstart.blame.causes.context import Context, found, short, sides
from headstart.blame.diff import replaced
from headstart.blame.finding import Change, Finding, Fix, Step
from headstart.blame.prompt import Kind

CODE = "HISTORY_REWRITTEN"
PLAIN = (
    "A message that was already sent comes back with other text, was taken out or got something put "
    "before it. Everything from there on is read again."
)
FIX = Fix("Send old messages as they were first sent; put what is new into the newest message.")
AIDER = Fix("aider recomputes its map of the repository; freeze or drop it.", "aider --map-refresh manual")


def detect(change: Change | None, context: Context) -> Finding | None:
    if change is None or (change.before is None and change.after is None):
        return None
    kinds = {piece.kind for piece in (change.before, change.after) if piece}
    if kinds <= {Kind.TOOL, Kind.SYSTEM} and not _late(change):
        return None
    what = (
        "the model's turn came back otherwise"
        if context.step is Step.GENERATED
        else "an older message changed"
    )
    fix = AIDER if change.before and "add them to the chat" in change.before.text[:2000] else FIX
    return found(CODE, change, context, f"{what}: {_how(change)}", fix)


def _how(change: Change) -> str:
    at = sides(change)
    if at is not None:
        _, gone, come = replaced(at.before, at.after)
        return f"{short(gone) or 'nothing'} -> {short(come) or 'nothing'}"
    was = f"{change.before.role} {short(change.before.text)}" if change.before else "nothing"
    now = f"{change.after.role} {short(change.after.text)}" if change.after else "nothing"
    return f"{was} -> {now}"


def _late(change: Change) -> bool:
    ahead = change.after_prompt.pieces[: change.index]
    return any(piece.kind not in (Kind.TOOL, Kind.SYSTEM) for piece in ahead)
