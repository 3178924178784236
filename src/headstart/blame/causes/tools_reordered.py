"""The same tools in another order."""

from __future__ import annotations

from collections import Counter

from headstart.blame.causes.context import Context, found, short
from headstart.blame.finding import Change, Finding, Fix
from headstart.blame.prompt import Kind, Prompt

CODE = "TOOLS_REORDERED"
PLAIN = (
    "The client sends the same tools in another order, often because it keeps them in a map or connects its "
    "tool servers at different speeds. Tools stand at the front of most prompts, so nearly all is read again."
)
FIX = Fix("Sort the tools by name before they are sent.", repair="tools")


def detect(change: Change | None, context: Context) -> Finding | None:
    if change is None or Kind.TOOL not in {piece.kind for piece in (change.before, change.after) if piece}:
        return None
    before, after = tools(change.before_prompt), tools(change.after_prompt)
    if before == after or Counter(before) != Counter(after):
        return None
    place = next(index for index, pair in enumerate(zip(before, after, strict=True)) if pair[0] != pair[1])
    was, now = before[place][0], after[place][0]
    said = f"{len(after)} tools in another order: tool {place} was {short(was)}, now {short(now)}"
    return found(CODE, change, context, said, FIX)


def tools(prompt: Prompt) -> list[tuple[str, str]]:
    """Name and JSON of every tool, in order."""
    return [(piece.name, piece.text) for piece in prompt.pieces if piece.kind is Kind.TOOL]
