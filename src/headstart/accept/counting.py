"""How many tokens a text has, as the server counts: exactly by its tokenizer, else from replies. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile

from headstart.accept.judge import Reach

UNCERTAIN = 0.015
"""Part of an estimated count that may be wrong: the text is alike everywhere."""
DEFAULT_CHARS_PER_TOKEN = 4.0
DEFAULT_OVERHEAD_TOKENS = 40


@dataclass(frozen=True)
class Ratio:
    """`overhead_tokens`: template and question. A passage of n characters is a prompt of overhead_tokens +
    n / chars_per_token tokens."""

    chars_per_token: float = DEFAULT_CHARS_PER_TOKEN
    overhead_tokens: int = DEFAULT_OVERHEAD_TOKENS

    def length(self, prompt_tokens: int) -> int:
        """Characters of a passage that makes a prompt of so many tokens."""
        return max(1, int((prompt_tokens - self.overhead_tokens) * self.chars_per_token))

    def tokens(self, length: int) -> int:
        """Tokens of the prompt with a passage of `length` characters."""
        return self.overhead_tokens + round(length / self.chars_per_token)


def ratio_of(short: tuple[int, int], long: tuple[int, int]) -> Ratio:
    """The ratio from two (characters, prompt tokens) of different length."""
    chars, tokens = long[0] - short[0], long[1] - short[1]
    if chars <= 0 or tokens <= 0:
        return Ratio()
    per_token = chars / tokens
    return Ratio(per_token, max(0, round(short[1] - short[0] / per_token)))


def shared_tokens(one: Sequence[int], other: Sequence[int]) -> int:
    """How many leading tokens are equal."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))


def shared_chars(one: str, other: str) -> int:
    """How many leading characters are equal."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def estimated_reach(chars: int, ratio: Ratio) -> Reach:
    """Tokens before a divergence `chars` characters into the content, template tokens unknown."""
    tokens = chars / ratio.chars_per_token
    slack = max(8.0, tokens * UNCERTAIN)
    return Reach(max(0, int(tokens - slack)), int(tokens + slack) + ratio.overhead_tokens)
