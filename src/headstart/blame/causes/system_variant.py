"""Another system prompt in the same conversation."""

from __future__ import annotations

from headstart.blame.causes.context import Context, found, short, sides
from headstart.blame.diff import replaced
from headstart.blame.finding import Change, Finding, Fix
from headstart.blame.prompt import Kind, Prompt

CODE = "SYSTEM_VARIANT"
PLAIN = (
    "The client uses another system prompt for some of its requests in the same conversation (another "
    "mode, agent or kind of run). Each variant has a cache of its own, and a change of variant reads "
    "everything again."
)
FIX = Fix("Use one system prompt for the session; say what is special about a turn in its last message.")
_ALIKE = 0.5


def detect(change: Change | None, context: Context) -> Finding | None:
    at = sides(change) if change else None
    if change is None:
        return None
    kinds = {piece.kind for piece in (change.before, change.after) if piece}
    if Kind.SYSTEM not in kinds or not _all_system_before(change):
        return None
    now = _system(change.after_prompt)
    seen = any(_system(prompt) == now for prompt in context.prompts[:-1])
    if not seen and at is not None and _share(at.before, at.after) >= _ALIKE:
        return None
    again = "one that was used before" if seen else "another one"
    was, is_now = (short(text) or "none" for text in (_system(change.before_prompt), now))
    return found(CODE, change, context, f"the system prompt is {again}: {was} -> {is_now}", FIX)


def _all_system_before(change: Change) -> bool:
    ahead = change.after_prompt.pieces[: change.index]
    return all(piece.kind in (Kind.TOOL, Kind.SYSTEM) for piece in ahead)


def _system(prompt: Prompt) -> str:
    """What stands before the first message that is not the system's."""
    texts = []
    for piece in prompt.pieces:
        if piece.kind is Kind.SYSTEM:
            texts.append(piece.text)
        elif piece.kind is not Kind.TOOL:
            break
    return "\n".join(texts)


def _share(one: str, other: str) -> float:
    """How much both have in common: lines, or the beginning and the end, by length."""
    _, gone, come = replaced(one, other)
    ends = 1 - max(len(gone), len(come)) / max(1, len(one), len(other))
    lines = one.split("\n"), other.split("\n")
    known = set(lines[1])
    common = sum(len(line) + 1 for line in lines[0] if line in known)
    return max(ends, common / max(1, len(one) + 1, len(other) + 1))
