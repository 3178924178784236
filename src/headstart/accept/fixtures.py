"""The texts that are sent: nested by tier, salted, with markers whose values can be asked for.

A family is one salted set of texts. Every tier's text begins byte for byte with the smaller tier's, so
a longer one is an append to a shorter one. Another family differs from its first line on: nothing of
one can be resumed for the other.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

MARKER_NAMES: Final = ("EARLY", "MIDDLE", "LATE", "FOURTH", "FIFTH", "SIXTH")
"""One a tier, the smallest tier first: about 4 k, 20 k and 96 k tokens deep with the usual tiers."""


@dataclass(frozen=True)
class Tier:
    """A size of prompt. `tokens`: the nominal limit, e.g. 8192 for "8k"."""

    name: str
    tokens: int

    @property
    def least(self) -> int:
        """Fewest tokens a prompt of this tier may have: 90 % of the limit."""
        return (self.tokens * 9 + 9) // 10

    @property
    def most(self) -> int:
        """Most tokens: 256 below the limit, or a sixteenth of it below for small ones."""
        return self.tokens - min(256, self.tokens // 16)


@dataclass(frozen=True)
class Marker:
    """A planted fact, written NAME=value. `at`: index of the value's first character in the text."""

    name: str
    value: str
    at: int


@dataclass(frozen=True)
class Passage:
    """A text with its markers, in order of depth. `tier` None for a piece of one."""

    text: str
    markers: tuple[Marker, ...]
    tier: Tier | None = None

    def value(self, name: str) -> str | None:
        """The value of marker `name`, None where it is not in this text."""
        return next((marker.value for marker in self.markers if marker.name == name), None)

    def edited(self, name: str, value: str) -> Passage:
        """The same text with another value of equal length. Raises ValueError otherwise."""
        marker = next((m for m in self.markers if m.name == name), None)
        if marker is None or len(marker.value) != len(value):
            raise ValueError(f"no marker {name} with a value as long as {value!r}")
        end = marker.at + len(value)
        changed = tuple(replace(m, value=value) if m.name == name else m for m in self.markers)
        return replace(self, text=self.text[: marker.at] + value + self.text[end:], markers=changed)

    def changed_at(self, index: int) -> Passage:
        """The same text with one word, the first that begins at `index` or after, replaced by another of
        equal length (its letters in reverse, or x's where that is the same)."""
        start = index
        while start < len(self.text) and not (
            self.text[start].isalpha() and (start == 0 or not self.text[start - 1].isalpha())
        ):
            start += 1
        end = start
        while end < len(self.text) and self.text[end].isalpha():
            end += 1
        word = self.text[start:end]
        other = word[::-1] if word[::-1][:1] != word[:1] else "x" * len(word)
        return replace(self, text=self.text[:start] + other + self.text[end:])

    def cut(self, length: int) -> Passage:
        """The first `length` characters, with the markers that are whole in it."""
        kept = tuple(m for m in self.markers if m.at + len(m.value) <= length)
        return Passage(self.text[:length], kept)


@dataclass(frozen=True)
class Family:
    """`passages` by tier name, the smallest first. `salt`: what makes it unlike any other family."""

    salt: str
    passages: dict[str, Passage]

    def at(self, tier: Tier) -> Passage:
        return self.passages[tier.name]


class QuestionKind(StrEnum):
    """How a model is asked for the markers' values."""

    ASK = "ask"
    """All at once: answer EARLY=..., MIDDLE=..., NA where absent. For capable models."""
    COPY = "copy"
    """One at a time: continue "EARLY=". For small models."""
