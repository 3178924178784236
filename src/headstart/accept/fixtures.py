"""The texts that are sent: nested by tier, salted, with markers whose values can be asked for.

A family is one salted set of texts. Every tier's text begins byte for byte with the smaller tier's, so
a longer one is an append to a shorter one. Another family differs from its first line on: nothing of
one can be resumed for the other.
"""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cache
from importlib.resources import files
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

    def struck(self, index: int, letter: str = "q") -> Passage:
        """The same text with the character at `index` replaced by `letter`, or by x where it is that."""
        other = letter if self.text[index] != letter else "x"
        return replace(self, text=self.text[:index] + other + self.text[index + 1 :])

    def grown(self, length: int) -> Passage:
        """The same text with about `length` more characters of prose at its end."""
        return replace(self, text=f"{self.text}\n\nWhat was added later.\n\n{prose(length)}")

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


_DEPTHS: Final = (0.5, 0.625, 0.75)
"""Where the marker of the first, second and any later tier stands, as a part of the tier."""
_TIER = re.compile(r"\s*([0-9]{1,9})\s*(k?)\s*", re.IGNORECASE)


def parse_tiers(text: str) -> tuple[Tier, ...]:
    """Tiers named by "8k,32k" or "500,2k" (k is 1024), smallest first. Raises ValueError."""
    found: dict[int, Tier] = {}
    for word in text.split(","):
        match = _TIER.fullmatch(word)
        if match is None:
            raise ValueError(f"expected sizes such as 8k,32k or 500, found {word.strip()!r}")
        tokens = int(match[1]) * (1024 if match[2] else 1)
        if tokens < 256:
            raise ValueError(f"a tier needs at least 256 tokens, found {word.strip()!r}")
        found[tokens] = Tier(word.strip().lower(), tokens)
    if len(found) > len(MARKER_NAMES):
        raise ValueError(f"at most {len(MARKER_NAMES)} tiers")
    return tuple(found[tokens] for tokens in sorted(found))


@cache
def _base() -> str:
    return files("headstart.accept.text").joinpath("prose.txt").read_text(encoding="ascii")


@cache
def _repeated(parts: int) -> str:
    base = _base()
    return base + "".join(f"\nPart {number + 1}.\n\n{base}" for number in range(1, parts))


def prose(length: int) -> str:
    """The first `length` characters of the text, which goes on in numbered parts without end."""
    return _repeated(length // len(_base()) + 1)[:length]


class Texts:
    """Makes salted texts. `salt`: the run's; the same salt makes the same texts in the same order."""

    def __init__(self, salt: str) -> None:
        self._random = random.Random(salt)

    def family(self, sizes: Sequence[tuple[Tier, int]], chars_per_token: float) -> Family:
        """Nested texts; `sizes`: each tier with the length of its text in characters."""
        head = self._head()
        text, markers, read = head, [], 0
        passages: dict[str, Passage] = {}
        for place, (tier, length) in enumerate(sizes):
            depth = int(tier.tokens * _DEPTHS[min(place, len(_DEPTHS) - 1)] * chars_per_token)
            depth = max(depth, len(text) + (length - len(text)) // 10)
            text, read = _grown(text, read, min(depth, length - 40))
            lead = f"\n\nKeep in mind: {MARKER_NAMES[place]}="
            markers.append(Marker(MARKER_NAMES[place], self.value(), len(text) + len(lead)))
            text += f"{lead}{markers[-1].value}.\n\n"
            text, read = _grown(text, read, length)
            passages[tier.name] = Passage(text, tuple(markers), tier)
        return Family(head.strip(), passages)

    def passage(self, length: int) -> Passage:
        """One text of `length` characters with EARLY in its middle."""
        tier = Tier("", length)
        return replace(self.family([(tier, length)], 1.0).passages[""], tier=None)

    def value(self, unlike: str | None = None) -> str:
        """A marker's value: five digits, the first unlike that of `unlike`."""
        first = [digit for digit in "23456789" if unlike is None or digit != unlike[0]]
        return self._random.choice(first) + "".join(self._random.choice("0123456789") for _ in range(4))

    def _head(self) -> str:
        digits = " ".join(self._random.choice("0123456789") for _ in range(10))
        return f"{digits} is the number of this notebook.\n\n"


def _grown(text: str, read: int, length: int) -> tuple[str, int]:
    """`text` with prose from `read` on up to about `length` characters, and where the prose stands now."""
    more = max(0, length - len(text))
    added = prose(read + more)[read:]
    added = added[: added.rfind(" ")]
    return text + added, read + len(added)
