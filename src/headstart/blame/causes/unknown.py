"""A change that no other detector knows."""

from __future__ import annotations

from headstart.blame.causes.context import Context, found, short
from headstart.blame.finding import Change, Finding, Fix

CODE = "UNKNOWN"
PLAIN = (
    "The prompt changed at a place that was already sent, in a way this program has no name for. The text on "
    "both sides of the place is shown."
)
FIX = Fix("Look at both texts and keep what was already sent as it was.")


def detect(change: Change | None, context: Context) -> Finding | None:
    if change is None:
        return None
    was = short(change.before.text[change.char :]) if change.before else ""
    now = short(change.after.text[change.char :]) if change.after else ""
    return found(CODE, change, context, f"unknown change: {was or 'nothing'} -> {now or 'nothing'}", FIX)
