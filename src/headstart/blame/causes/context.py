"""What a detector may know besides the change, and how it says what it found."""

from __future__ import annotations

import re
from dataclasses import dataclass

from headstart.blame.diff import window
from headstart.blame.exchange import Dialect, Exchange
from headstart.blame.finding import Change, Culprit, Finding, Fix, Step
from headstart.blame.prompt import Kind, Prompt

# Below this many tokens nobody waits, and servers keep a few tokens back by design.
SMALL_TOKENS = 64
SMALL_SHARE = 0.02


@dataclass(frozen=True)
class Context:
    """A turn and the turn before it in its conversation.

    `conversation`, `prompts`: the conversation's exchanges as far as they are known, this one included, and
    their prompts up to this one. `between`: exchanges of other conversations and side requests that the
    server had between both turns. `step`: what is compared: bodies, or this turn with what the model
    generated. `new`: the turn is its conversation's first, and the one before is the first of another that
    begins alike.
    """

    exchange: Exchange
    before: Exchange
    prompt: Prompt
    before_prompt: Prompt
    conversation: tuple[Exchange, ...] = ()
    prompts: tuple[Prompt, ...] = ()
    between: tuple[Exchange, ...] = ()
    step: Step = Step.BODY
    new: bool = False

    @property
    def shortfall(self) -> int | None:
        """Tokens of the turn before that could have been reused and were not; None where not told."""
        cached, had = self.exchange.usage.cached, self.before.usage.prompt
        if cached is None or had is None:
            return None
        now = self.exchange.usage.prompt
        return max(0, min(had, now if now is not None else had) - cached)

    @property
    def from_claude(self) -> bool:
        """Whether Claude Code may have sent this."""
        agents = [text for name, text in self.exchange.headers.items() if name.lower() == "user-agent"]
        return self.exchange.dialect is Dialect.ANTHROPIC and all("claude" in text.lower() for text in agents)

    def served_by(self, name: str) -> bool:
        """Whether the server is known to be that one; Ollama's own API is Ollama's."""
        if self.exchange.server:
            return name in self.exchange.server.lower()
        return name == "ollama" and self.exchange.dialect in (Dialect.OLLAMA_CHAT, Dialect.OLLAMA_GENERATE)

    @property
    def server_lost(self) -> bool:
        """Whether the server read again more than it holds back by design."""
        lost = self.shortfall
        had = self.before.usage.prompt or 0
        return lost is not None and lost > max(SMALL_TOKENS, SMALL_SHARE * had)


def found(
    code: str,
    change: Change,
    context: Context,
    said: str,
    fix: Fix,
) -> Finding:
    """The client's doing, at the place of `change`."""
    return Finding(
        cause=code,
        culprit=Culprit.CLIENT,
        step=context.step,
        said=said,
        path=change.path,
        offset=change.char,
        char=change.chars_before + change.char,
        fix=fix,
        before=window(change.before.text, change.char) if change.before else "",
        after=window(change.after.text, change.char) if change.after else "",
    )


def server_finding(
    code: str, context: Context, said: str, fix: Fix, culprit: Culprit = Culprit.SERVER
) -> Finding:
    """A finding of a turn whose bodies agree."""
    step = Step.SERVER if culprit is Culprit.SERVER else context.step
    return Finding(cause=code, culprit=culprit, step=step, said=said, fix=fix)


@dataclass(frozen=True)
class Sides:
    """One piece as it was and as it is, and the place where the texts part."""

    before: str
    after: str
    char: int
    kind: Kind

    @property
    def lines(self) -> tuple[str, str]:
        return line_at(self.before, self.char), line_at(self.after, self.char)


def sides(change: Change) -> Sides | None:
    """Both texts, where the same kind of piece stands on both sides."""
    if change.before is None or change.after is None or change.before.kind is not change.after.kind:
        return None
    if (change.before.role, change.before.name) != (change.after.role, change.after.name):
        return None
    return Sides(change.before.text, change.after.text, change.char, change.after.kind)


def line_at(text: str, char: int) -> str:
    """The line that holds the place; at the end of a line, that line."""
    start = text.rfind("\n", 0, char) + 1
    end = text.find("\n", char)
    return text[start : end if end >= 0 else len(text)]


def covering(pattern: re.Pattern[str], text: str, char: int, reach: int = 120) -> str | None:
    """What `pattern` matches around the place, on both sides of it or touching it."""
    start = max(0, char - reach)
    for match in pattern.finditer(text, start, min(len(text), char + reach)):
        if match.start() <= char <= match.end():
            return match.group()
    return None


def both(pattern: re.Pattern[str], at: Sides) -> tuple[str, str] | None:
    """What `pattern` matches at the place in both texts, where that differs."""
    one, other = covering(pattern, at.before, at.char), covering(pattern, at.after, at.char)
    return (one, other) if one is not None and other is not None and one != other else None


def short(text: str, most: int = 60) -> str:
    """A text on one line, for people."""
    flat = " ".join(text.split())
    return flat if len(flat) <= most else flat[: most - 3] + "..."
