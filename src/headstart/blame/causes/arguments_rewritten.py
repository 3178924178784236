"""A call that comes back with other arguments than the model wrote."""

from __future__ import annotations

import json
from typing import Any

from headstart.blame.causes.context import Context, found, sides
from headstart.blame.finding import Change, Finding, Fix, Step
from headstart.blame.prompt import Kind

CODE = "ARGUMENTS_REWRITTEN"
PLAIN = (
    "The client parses the arguments of a tool call and writes them anew when it sends the turn back: "
    "other spacing, other escapes, keys in another order or added defaults. What the model generated is "
    "then in the cache in another form, and everything from that call on is read again."
)
FIX = Fix("Send arguments back to the byte as they were generated.", repair="arguments")


def detect(change: Change | None, context: Context) -> Finding | None:
    at = sides(change) if change else None
    if change is None or at is None or at.kind is not Kind.CALL:
        return None
    name = change.after.name if change.after else ""
    since = "than generated" if context.step is Step.GENERATED else "than in the turn before"
    said = f"the arguments of {name or 'a call'} are written otherwise {since}: {_how(at.before, at.after)}"
    return found(CODE, change, context, said, FIX)


def _how(before: str, after: str) -> str:
    one, other = _parsed(before), _parsed(after)
    if not isinstance(one, dict) or not isinstance(other, dict):
        return "spacing or escapes" if one is not None and one == other else "other text"
    if added := [key for key in other if key not in one]:
        return f"{', '.join(added)} added"
    if gone := [key for key in one if key not in other]:
        return f"{', '.join(gone)} left out"
    if one != other:
        return "other values"
    return "keys in another order" if list(one) != list(other) else "spacing or escapes"


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return None
