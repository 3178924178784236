"""The same text in other blocks."""

from __future__ import annotations

from headstart.blame.causes.context import Context, found
from headstart.blame.diff import same_once_joined
from headstart.blame.finding import Change, Finding, Fix

CODE = "SHAPE_ONLY"
PLAIN = (
    "The requests differ, but not in what the model reads: the same text is cut into other blocks, or the "
    "template leaves the difference out. Nothing is lost by it, unless a template writes something between "
    "blocks."
)
FIX = Fix(
    "Nothing needs to be done where no tokens were lost; else send a message in the same blocks every time."
)


def detect(change: Change | None, context: Context) -> Finding | None:
    if change is None or not same_once_joined(change):
        return None
    return found(CODE, change, context, "the same text is cut into other blocks", FIX)


def rendered_alike(change: Change, context: Context) -> Finding:
    """The finding where the template is known to make the same prompt of both."""
    return found(CODE, change, context, "the bodies differ here, and the rendered prompts do not", FIX)
