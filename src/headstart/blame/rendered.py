"""Steps b to d of the diff: the rendered prompts, their tokens, and what was generated in between.

Asked where two bodies only go on where they ended, or for the place in the prompt that a change of the
bodies comes to. A reply is compared too: the next prompt should begin with this one and what was generated.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from headstart.blame.causes import (
    history_rewritten,
    system_hoisted,
    template_suffix,
    thinking_stripped,
    unknown,
)
from headstart.blame.exchange import Exchange
from headstart.blame.finding import Culprit, Finding, Fix, Step
from headstart.blame.prompt import Kind, Prompt
from headstart.blame.rendering import Reader, common_chars, common_tokens, rendered, with_reply

__all__ = ["Parting", "deeper", "parting", "placed"]

CONTEXT_CHARS = 60


@dataclass(frozen=True)
class Parting:
    """Where the prompt of a turn parts from that of the turn before it. `char` and `token` are places in the
    later prompt, `token` None without a tokenizer. `tokens`: all of the later prompt's."""

    char: int
    token: int | None
    tokens: int | None
    before: str = field(repr=False)
    after: str = field(repr=False)
    left: str
    right: str

    @property
    def behind(self) -> int | None:
        """Tokens of the later prompt from the place on."""
        return None if self.tokens is None or self.token is None else self.tokens - self.token


def parting(reader: Reader, before: str, after: str) -> Parting | None:
    """None where `after` begins with all of `before`."""
    char = common_chars(before, after)
    if char == len(before):
        return None
    then, now = reader.tokens(before), reader.tokens(after)
    return Parting(
        char,
        None if then is None or now is None else common_tokens(then, now),
        None if now is None else len(now),
        before,
        after,
        before[char : char + CONTEXT_CHARS],
        after[char : char + CONTEXT_CHARS],
    )


def deeper(reader: Reader, before: Exchange, first: Prompt, second: Prompt) -> Finding | None:
    """What the template does to a conversation whose bodies only went on. `first`: the prompt of `before`;
    `second`: the next one's. None where the next prompt begins with this one and its reply, or the template
    refuses one of them."""
    plain, _ = rendered(reader, first, to_generate=False)
    after, _ = rendered(reader, second)
    if plain is None or after is None:
        return None
    place = parting(reader, plain, after)
    if place is not None:
        return _template(place, first, second)
    asked, _ = rendered(reader, first)
    if asked is None:
        return None
    place = parting(reader, asked, after)
    if place is not None:
        return _suffix(place, before)
    return _generated(reader, asked, after, before, first)


def _template(place: Parting, first: Prompt, second: Prompt) -> Finding:
    """The template writes an earlier part of the conversation otherwise, now that it goes on."""
    thinking = [piece.text for piece in first.pieces if piece.kind is Kind.THINKING and piece.text.strip()]
    lost = [text for text in thinking if text.strip() in place.before and text.strip() not in place.after]
    if lost:
        said = f"the template drops the thinking of earlier turns: {_short(lost[0])}"
        return placed(_template_finding(thinking_stripped.CODE, said, thinking_stripped.KEEP), place)
    moved = _hoisted(place, second)
    if moved:
        said = f"the template puts a system message of the middle to the front: {_short(moved)}"
        return placed(_template_finding(system_hoisted.CODE, said, system_hoisted.FIX), place)
    said = "the template writes earlier messages otherwise once the conversation goes on"
    return placed(_template_finding(unknown.CODE, said, template_suffix.FIX), place)


def _hoisted(place: Parting, second: Prompt) -> str:
    """The text of a system message that is not the first message, and stands where the prompts part."""
    for piece in second.pieces:
        if piece.kind is not Kind.SYSTEM or not piece.message or not piece.text.strip():
            continue
        at = place.after.find(piece.text.strip())
        if 0 <= at <= place.char + CONTEXT_CHARS and place.char <= at + len(piece.text):
            return piece.text
    return ""


def _suffix(place: Parting, before: Exchange) -> Finding:
    """What the template adds for a reply is not what stands there once the reply is history."""
    written = place.before[place.char :]
    said = f"what the template adds for a reply, {_short(written)}, is not in the history afterwards"
    if "<think" in written or "think>" in written:
        said += ": its thinking block is written for the newest turn only"
    fix = template_suffix.THINKING if "think>" in written else template_suffix.FIX
    return placed(_template_finding(template_suffix.CODE, said, fix), place)


def _generated(reader: Reader, asked: str, after: str, before: Exchange, first: Prompt) -> Finding | None:
    """Whether the reply stands in the next prompt as it was generated: its text, then its tokens."""
    reply = before.reply
    if not reply.text and not reply.calls and not reply.thinking:
        return None
    replayed, _ = rendered(reader, with_reply(first, reply), to_generate=False)
    if replayed is None or common_chars(asked, replayed) < len(asked):
        return None  # the template does not write its own reply where it asked for one: see _suffix
    text = asked + reply.text
    if reply.thinking or reply.calls or not after.startswith(text):
        place = parting(reader, replayed.rstrip(), after)
        if place is None or place.char < len(asked):
            return None
        said = f"the reply came back changed: {_short(place.left)} -> {_short(place.right)}"
        finding = Finding(
            history_rewritten.CODE, Culprit.CLIENT, Step.GENERATED, said, fix=history_rewritten.FIX
        )
        return placed(finding, place)
    return None


def _template_finding(cause: str, said: str, fix: Fix) -> Finding:
    return Finding(cause, Culprit.TEMPLATE, Step.RENDERED, said, fix=fix)


def placed(finding: Finding, place: Parting) -> Finding:
    return replace(
        finding,
        char=place.char,
        token=place.token,
        tokens_behind=place.behind,
        before=place.left,
        after=place.right,
    )


def _short(text: str) -> str:
    line = text.strip().replace("\n", "⏎")
    return f"“{line[:CONTEXT_CHARS]}{'…' if len(line) > CONTEXT_CHARS else ''}”"
