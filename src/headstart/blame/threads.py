"""A conversation while it may go on: its turns, and what of them is kept for the next one."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import takewhile

from headstart.blame.exchange import Exchange
from headstart.blame.prompt import Kind, Piece, Prompt
from headstart.blame.purpose import Purpose

RECENT_TURNS = 16
"""The last turns of a conversation, with which a new request is compared; so it is with the first one."""


@dataclass(frozen=True)
class Limits:
    """What is kept while exchanges come in without end. `turns`: the last ones of a conversation, besides its
    first; `conversations`: the latest ones; `text_bytes`: of all prompts that are kept."""

    turns: int
    conversations: int
    text_bytes: int


LIVE = Limits(turns=RECENT_TURNS, conversations=200, text_bytes=256 << 20)


@dataclass(frozen=True)
class Turn:
    """`number`: its place in its conversation, from 1; 0 for side requests. `prompt`: None where the body
    cannot be read. `before`: the turn of this conversation whose beginning it shares; of a first
    turn the first one of another conversation that begins alike. `between`: what else
    the server had to do between both."""

    exchange: Exchange
    prompt: Prompt | None
    purpose: Purpose = Purpose.TURN
    number: int = 0
    before: Turn | None = field(default=None, repr=False, compare=False)
    between: tuple[Exchange, ...] = field(default=(), repr=False, compare=False)

    @property
    def answered(self) -> bool:
        """Whether the server took the request, so that its prompt may be cached."""
        status = self.exchange.status
        return status is None or status < 400


@dataclass
class Thread:
    """A conversation that may go on. Of each turn that is kept, `heads`: the hashes of its message pieces;
    `places`: its place among all exchanges; `sizes`: bytes of its texts. `seen`, `sessions`: in the order in
    which they came. `used`: the place of the last turn."""

    name: str
    count: int = 0
    used: int = 0
    turns: list[Turn] = field(default_factory=list)
    side: list[Turn] = field(default_factory=list)
    heads: list[list[int]] = field(default_factory=list)
    places: list[int] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)
    seen: dict[int, None] = field(default_factory=dict)
    summaries: list[str] = field(default_factory=list)
    sessions: dict[str, None] = field(default_factory=dict)

    @property
    def with_tools(self) -> bool:
        prompt = self.turns[0].prompt
        return prompt is not None and any(piece.kind is Kind.TOOL for piece in prompt.pieces)

    def forget(self) -> None:
        """The second of its turns goes; the first is what new requests are compared with longest."""
        for kept in (self.turns, self.heads, self.places, self.sizes):
            del kept[1]


def front(prompt: Prompt) -> list[Piece]:
    """Tools and the first system messages."""
    return list(takewhile(lambda piece: piece.kind in (Kind.TOOL, Kind.SYSTEM), prompt.pieces))


def messages(prompt: Prompt) -> list[Piece]:
    """The pieces behind the front."""
    return list(prompt.pieces[len(front(prompt)) :])
