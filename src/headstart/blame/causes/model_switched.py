"""Another model in the same conversation."""

from __future__ import annotations

from headstart.blame.causes.context import Context, found, server_finding, short
from headstart.blame.finding import Change, Culprit, Finding, Fix

CODE = "MODEL_SWITCHED"
PLAIN = (
    "The conversation went on with another model. A cache belongs to one model, so the new one reads "
    "everything; going back to the old one may find its cache gone."
)
FIX = Fix(
    "Stay with one model in a session, or switch where a new session begins. Where both are wanted, give the "
    "server room for both at once."
)


def detect(change: Change | None, context: Context) -> Finding | None:
    was, now = context.before_prompt.model, context.prompt.model
    if was == now or not was or not now:
        return None
    said = f"the model changed: {short(was)} -> {short(now)}"
    if change is not None:
        return found(CODE, change, context, said, FIX)
    return server_finding(CODE, context, said, FIX, Culprit.CLIENT)
