"""What the model thought, left out when its turn comes back."""

from __future__ import annotations

import re
from dataclasses import replace

from headstart.blame.causes.context import Context, found, sides
from headstart.blame.diff import key, replaced
from headstart.blame.finding import Change, Finding, Fix, Step
from headstart.blame.prompt import Kind, Piece

CODE = "THINKING_STRIPPED"
PLAIN = (
    "The model's thinking was in the prompt, or in what it had just generated, and is left out when that "
    "turn is sent again. The prompt parts where the thinking began."
)
FIX = Fix(
    "Send reasoning back (reasoning_content, or thinking blocks) and have the template keep it: "
    "`preserve_thinking` in chat_template_kwargs where it knows that, --reasoning-preserve in "
    "llama-server."
)
CLAUDE = Fix(
    "Claude Code asks that old thinking be cleared (context_management: clear_thinking); this variable "
    "takes that out of its requests. The template must keep thinking as well.",
    "CLAUDE_CODE_DISABLE_EXPERIMENTAL_BETAS=1",
)
KEEP = Fix(
    "Let the template keep the thinking of earlier turns, and the client send it back, or switch it off.",
    'chat_template_kwargs: {"preserve_thinking": true} where the template has that switch, else '
    '{"enable_thinking": false}',
)
"""For a template that drops what the client sent."""
_INLINE = re.compile(r"<think(?:ing)?>|</think(?:ing)?>")


def detect(change: Change | None, context: Context) -> Finding | None:
    if change is None or change.before is None:
        return None
    was = "generated" if context.step is Step.GENERATED else "sent before"
    how = _how(change, change.before)
    if not how:
        return None
    said = f"thinking of {len(change.before.text):,} characters that was {was} is {how}"
    fix = replace(FIX, command="--reasoning-preserve") if context.served_by("llama") else FIX
    edits = context.prompt.options.get("context_management")
    return found(CODE, change, context, said, CLAUDE if "clear_thinking" in str(edits) else fix)


def _how(change: Change, before: Piece) -> str:
    if before.kind is Kind.THINKING:
        return _gone(change)
    at = sides(change)
    if at is None or before.role != "assistant":
        return ""
    _, gone, come = replaced(at.before, at.after)
    inline = _INLINE.search(gone) and not _INLINE.search(come) and len(come) < len(gone)
    return "left out of the text" if inline else ""


def _gone(change: Change) -> str:
    """Nothing to say where the whole turn is gone and something else took its place."""
    after = change.after
    if after is None or after.role != "assistant":
        return ""
    left = change.index_before if change.index_before is not None else change.index
    rest = change.before_prompt.pieces[left + 1 :]
    if after.kind is Kind.THINKING:
        moved = any(key(piece) == key(after) for piece in rest)
        return "" if moved else "sent back otherwise"
    follower = next((piece for piece in rest if piece.kind is not Kind.THINKING), None)
    alike = follower is None or follower.role != "assistant" or follower.kind is after.kind
    return "left out" if alike else ""
