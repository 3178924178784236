"""A system message from later in the conversation that lands at its front."""

from __future__ import annotations

from headstart.blame.causes.context import Context, found, short
from headstart.blame.finding import Change, Culprit, Finding, Fix, Step
from headstart.blame.prompt import Kind, Piece, Prompt

CODE = "SYSTEM_HOISTED"
PLAIN = (
    "A system message that stands among the others is moved to the front of the prompt, by the client, a "
    "gateway or the chat template. Each new one then changes the very beginning."
)
FIX = Fix(
    "Have system messages stay where they are: by a template that renders them in place, or by sending "
    "their text as part of a user message."
)
OMLX = Fix("Have oMLX keep system messages where they are.", "OMLX_PRESERVE_MID_SYSTEM_CACHE=true")


def detect(change: Change | None, context: Context) -> Finding | None:
    if change is None:
        return _by_template(context)
    after = change.after
    if after is None or after.kind is not Kind.SYSTEM or not after.text:
        return None
    index = change.index_before if change.index_before is not None else change.index
    if not _at_front(change.after_prompt, change.index):
        return None
    for piece in change.before_prompt.pieces[index + 1 :]:
        late = piece.kind is Kind.SYSTEM and piece.text and _late(change.before_prompt, piece)
        if late and (piece.text in after.text[change.char :]):
            said = f"a system message was lifted from {piece.path} to the front: {short(piece.text)}"
            return found(CODE, change, context, said, FIX)
    return None


def _at_front(prompt: Prompt, index: int) -> bool:
    return all(piece.kind in (Kind.TOOL, Kind.SYSTEM) for piece in prompt.pieces[:index])


def _late(prompt: Prompt, piece: Piece) -> bool:
    return not _at_front(prompt, prompt.pieces.index(piece))


def _by_template(context: Context) -> Finding | None:
    """Bodies agree, a system message is new at the end, and the server read nearly all again."""
    had, cached = context.before.usage.prompt, context.exchange.usage.cached
    if had is None or cached is None or not context.server_lost or cached > had // 2:
        return None
    new = context.prompt.pieces[len(context.before_prompt.pieces) :]
    late = [piece for piece in new if piece.kind is Kind.SYSTEM]
    if not late:
        return None
    said = (
        f"the new system message at {late[0].path} seems to be rendered at the front: {short(late[0].text)}"
    )
    fix = OMLX if context.served_by("omlx") else FIX
    return Finding(CODE, Culprit.TEMPLATE, Step.RENDERED, said, late[0].path, fix=fix)
