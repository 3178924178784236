"""Running totals of a server's log: none of them grows with its length."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import gcd
from typing import NamedTuple

from headstart.blame.logs.events import Checkpoint, Turn

KEPT_TURNS = 200
KEPT_KINDS = 64
LEAST_GAP = 64
"""Fewer tokens than these between the divergence and where reading began are no loss to speak of: the last
tokens of a prompt are always read."""
LEAST_GRAIN = 16


class NumberedTurn(NamedTuple):
    """`number`: from 1, in the order of the log. `gap`: tokens that the server held and read again.
    `changed`: tokens it held behind the place where the prompt parts. None: the log does not tell."""

    number: int
    turn: Turn
    gap: int | None = None
    changed: int | None = None

    @property
    def cost(self) -> int:
        """Tokens by which turns are put in order."""
        return self.turn.read or 0


@dataclass
class Loss:
    """Tokens lost to one cause, how often, and the worst turn."""

    tokens: int = 0
    turns: int = 0
    worst: NumberedTurn | None = None
    worst_tokens: int = 0

    def add(self, tokens: int, row: NumberedTurn) -> None:
        self.tokens += tokens
        self.turns += 1
        if tokens > self.worst_tokens:
            self.worst, self.worst_tokens = row, tokens


@dataclass
class Grain:
    """Whether restore points lie on multiples of something, or one token before them."""

    on: int = 0
    before: int = 0
    places: set[int] = field(default_factory=set)

    def add(self, position: int) -> None:
        self.on, self.before = gcd(self.on, position), gcd(self.before, position + 1)
        if len(self.places) < KEPT_KINDS:
            self.places.add(position)

    @property
    def tokens(self) -> int | None:
        """The distance, where at least three different places agree on one."""
        best = max(self.on, self.before)
        return best if len(self.places) >= 3 and best >= LEAST_GRAIN else None


@dataclass
class Points:
    """Checkpoints. Spacings are between one and the next in a slot, in tokens."""

    made: int = 0
    erased: int = 0
    restored: int = 0
    limit: int | None = None
    mib: float = 0.0
    least: int | None = None
    most: int | None = None
    spaced: int = 0
    spacing_sum: int = 0
    spacing_most: int = 0
    last: dict[int, int] = field(default_factory=dict)

    def take(self, point: Checkpoint) -> None:
        if not point.made:
            self.erased += 1
            return
        self.made += 1
        self.limit = point.limit or self.limit
        self.mib = max(self.mib, point.mib or 0.0)
        if point.position is None:
            return
        self.least = point.position if self.least is None else min(self.least, point.position)
        self.most = point.position if self.most is None else max(self.most, point.position)
        slot = point.slot or 0
        step = point.position - self.last.get(slot, point.position)
        if step > 0:
            self.spaced += 1
            self.spacing_sum += step
            self.spacing_most = max(self.spacing_most, step)
        if slot in self.last or len(self.last) < KEPT_KINDS:
            self.last[slot] = point.position

    @property
    def spacing(self) -> int | None:
        return round(self.spacing_sum / self.spaced) if self.spaced else None


@dataclass
class Totals:
    """Over all turns whose numbers are told."""

    turns: int = 0
    counted: int = 0
    prompt_tokens: int = 0
    cached: int = 0
    read: int = 0
    timed_read: int = 0
    read_ms: float = 0.0
    longest: int = 0
    later: int = 0
    later_cached: int = 0

    @property
    def ms_a_token(self) -> float | None:
        return self.read_ms / self.timed_read if self.timed_read else None


@dataclass
class Intervals:
    """Of servers that log totals only. `busy`: those in which prompts were read."""

    busy: int = 0
    never_hit: bool = True
    last_hit_share: float | None = None
    fullest: float = 0.0
