"""What was found: where two prompts part, why, what it cost and how to mend it."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from headstart.blame.prompt import Piece, Prompt


class Step(StrEnum):
    """How far down two turns were alike. The highest step that differs names the culprit."""

    BODY = "body"
    RENDERED = "rendered"
    TOKENS = "tokens"
    GENERATED = "generated"
    SERVER = "server"


class Culprit(StrEnum):
    CLIENT = "client"
    TEMPLATE = "template"
    TOKENIZER = "tokenizer"
    SERVER = "server"


@dataclass(frozen=True)
class Change:
    """Where the prompt of a turn parts from that of the turn before it, in one conversation.

    `before`, `after`: the pieces there; None where one side has none (a piece was added or taken away).
    `index`: of that piece among `after_prompt.pieces` (and among those before, as all before it are equal).
    `char`: first differing character within the pieces' text. `chars_before`: characters of all pieces
    before it, in the order of `Prompt.pieces`, so `chars_before + char` is the place in the whole prompt.
    `index_before`: of the piece among those before, where texts before it were cut into blocks otherwise.
    """

    before_prompt: Prompt
    after_prompt: Prompt
    index: int
    before: Piece | None
    after: Piece | None
    char: int
    chars_before: int
    index_before: int | None = None

    @property
    def path(self) -> str:
        piece = self.after or self.before
        return piece.path if piece else ""


@dataclass(frozen=True)
class Fix:
    """`text`: what to do, in a sentence. `command`: the exact setting, flag, variable or template line, where
    there is one. `repair`: name of the `watch --fix` repair that does it, where there is one."""

    text: str
    command: str = ""
    repair: str = ""


@dataclass(frozen=True)
class Finding:
    """`cause`: its code, as ATTRIBUTION. `said`: one line for people: what changed from what to what.
    `path`: the part of the body, `offset` the character in it. `char`, `token`: the place in the whole
    prompt, in its rendered form where `tokens_behind` is known, else in the order of `Prompt.pieces`; None
    where not counted. `tokens_behind`: tokens of the rendered prompt from the place on. `tokens_lost`:
    prompt tokens that were computed again behind it, by the server's count; `seconds_lost`: these at the
    server's measured reading speed. `before`, `after`: text around the place, on both sides."""

    cause: str
    culprit: Culprit
    step: Step
    said: str
    path: str = ""
    offset: int | None = None
    char: int | None = None
    token: int | None = None
    tokens_behind: int | None = None
    tokens_lost: int | None = None
    seconds_lost: float | None = None
    fix: Fix = field(default_factory=lambda: Fix(""))
    before: str = ""
    after: str = ""
