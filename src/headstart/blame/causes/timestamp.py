"""A clock in the prompt."""

from __future__ import annotations

from headstart.blame.causes.clock_words import EPOCH, MOMENT, period
from headstart.blame.causes.context import Context, both, found, short, sides
from headstart.blame.finding import Change, Finding, Fix
from headstart.blame.prompt import Kind

CODE = "TIMESTAMP"
PLAIN = (
    "The client writes the time into a part of the prompt that it sends every turn. Whenever the time as "
    "written is another, everything behind it is read again."
)
FIX = Fix(
    "Take the time out of the system prompt, or write it into the newest user message only and leave it "
    "there."
)
FREEZE = Fix(
    "Take the time out of the system prompt, or write it into the newest user message only and leave it "
    "there; where the client cannot, have that line frozen for the session.",
    repair="date",
)


def detect(change: Change | None, context: Context) -> Finding | None:
    at = sides(change) if change else None
    if change is None or at is None:
        return None
    times = both(MOMENT, at)
    every = period(*times) if times else "second"
    times = times or both(EPOCH, at)
    if times is None:
        return None
    said = f"the time changed: {short(times[0])} -> {short(times[1])}; as written it changes every {every}"
    return found(CODE, change, context, said, FREEZE if at.kind is Kind.SYSTEM else FIX)
