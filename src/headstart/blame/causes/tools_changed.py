"""Tools that were added, taken away or changed."""

from __future__ import annotations

from headstart.blame.causes.context import Context, found, short
from headstart.blame.causes.tools_reordered import tools
from headstart.blame.finding import Change, Finding, Fix
from headstart.blame.prompt import Kind, Prompt

CODE = "TOOLS_CHANGED"
PLAIN = (
    "The set of tools is another than in the turn before: a mode was switched, a tool server came, went or "
    "timed out, or tools are loaded when they are first needed. Most templates render tools at the front."
)
FIX = Fix(
    "Send the same tools for the whole session; forbid what must not be used by tool_choice or in words."
)
DEFERRED = Fix(
    "Have all tools loaded from the start. With this variable Claude Code 2.1.332 sent 23 tools, none "
    "deferred.",
    "CLAUDE_CODE_DISABLE_EXPERIMENTAL_BETAS=1",
)


def detect(change: Change | None, context: Context) -> Finding | None:
    if change is None or Kind.TOOL not in {piece.kind for piece in (change.before, change.after) if piece}:
        return None
    before, after = tools(change.before_prompt), tools(change.after_prompt)
    names, others = [name for name, _ in before], [name for name, _ in after]
    added = [name for name in others if name not in set(names)]
    gone = [name for name in names if name not in set(others)]
    known = set(before)
    changed = [name for name, text in after if name in set(names) and (name, text) not in known]
    parts = [_listed("added", added), _listed("gone", gone), _listed("changed", changed)]
    said = "tools " + "; ".join(part for part in parts if part) if any(parts) else "the tools changed"
    return found(CODE, change, context, said, DEFERRED if _deferred(change.before_prompt) else FIX)


def _listed(what: str, names: list[str]) -> str:
    if not names:
        return ""
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""
    return f"{what}: {', '.join(short(name) for name in names[:5])}{more}"


def _deferred(prompt: Prompt) -> bool:
    """Whether the client loads tools when they are first needed."""
    pieces = [piece for piece in prompt.pieces if piece.kind is Kind.TOOL]
    return any(isinstance(piece.raw, dict) and piece.raw.get("defer_loading") for piece in pieces) or any(
        piece.name == "ToolSearch" for piece in pieces
    )
