"""What was evicted lately, so that a miss after an eviction is counted as one, not guessed."""

from __future__ import annotations

from collections import deque
from itertools import islice

from headstart.prefix.keys import TOKEN_BYTES, shared_tokens

_NEWEST = 64


class Evicted:
    """The last `capacity` runs of tokens that were dropped, each under the key of the node it
    followed. Bounded: the oldest is forgotten first, and of the runs after one node only the newest 64
    are looked at."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._order: deque[bytes] = deque()
        self._runs: dict[bytes, deque[bytes]] = {}

    def __len__(self) -> int:
        return len(self._order)

    def add(self, parent: bytes, tokens: bytes) -> None:
        """`tokens` after the node with key `parent` are no longer stored."""
        if not self._capacity:
            return
        if len(self._order) == self._capacity:
            oldest = self._order.popleft()
            runs = self._runs[oldest]
            runs.popleft()
            if not runs:
                del self._runs[oldest]
        self._order.append(parent)
        self._runs.setdefault(parent, deque()).append(tokens)

    def shared(self, parent: bytes, tokens: bytes) -> int:
        """Most tokens that a dropped run after `parent` shares with `tokens`."""
        return max((shared_tokens(run, tokens) for run in self._newest(parent)), default=0)

    def within(self, parent: bytes, tokens: bytes) -> int:
        """Tokens in the longest dropped run after `parent` that is a beginning of `tokens`."""
        runs = self._newest(parent)
        return max((len(run) // TOKEN_BYTES for run in runs if tokens.startswith(run)), default=0)

    def _newest(self, parent: bytes) -> islice[bytes]:
        return islice(reversed(self._runs.get(parent, deque())), _NEWEST)
