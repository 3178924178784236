"""The template ends a prompt in a way that the next turn does not have."""

from __future__ import annotations

from headstart.blame.causes.context import Context
from headstart.blame.finding import Change, Finding, Fix

CODE = "TEMPLATE_SUFFIX"
PLAIN = (
    "The chat template puts something at the end of a prompt (an empty thinking block, a note) that is "
    "not there once the turn is followed by others, so the last turn is read again every time."
)
FIX = Fix("Use a template whose prompt for a turn is the beginning of its prompt for the next turn.")

THINKING = Fix(
    "Switch thinking off or have it kept, where the template has a switch; or use a template that writes "
    "replies into the history as it asks for them.",
    'chat_template_kwargs: {"enable_thinking": false} or {"preserve_thinking": true}',
)


def detect(change: Change | None, context: Context) -> Finding | None:
    """None: this is seen in the rendered prompt only."""
    return None
