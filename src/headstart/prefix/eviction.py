"""Who goes first: a heap of entries by priority that tolerates outdated places.

The priority of an entry rises while it waits (it is used again, what it could be restored from
instead is evicted). So the heap is not touched on use: an entry that comes out with an outdated
priority goes back in with the present one. Storing, using and evicting cost O(log n) at most.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heapify, heappop, heappush

from headstart.prefix.tree import Entry

_SMALL = 64


class EvictionQueue:
    """Entries that may be evicted. `clock`: the highest priority evicted so far.

    `priority`: of an entry now. `evictable`: whether it may go now; one that may not is
    dropped from the queue, and whoever makes it evictable again must `offer` it again.
    """

    def __init__(self, priority: Callable[[Entry], float], evictable: Callable[[Entry], bool]) -> None:
        self.clock = 0.0
        self._priority = priority
        self._evictable = evictable
        self._heap: list[Entry] = []
        self._stale = 0

    def __len__(self) -> int:
        return len(self._heap)

    def offer(self, entry: Entry) -> None:
        """Puts `entry` in, where it is not in already."""
        if not entry.queued:
            entry.queued = True
            entry.priority = self._priority(entry)
            heappush(self._heap, entry)

    def take(self) -> Entry | None:
        """Takes out the evictable entry of lowest priority and moves the clock to it."""
        while self._heap:
            entry = heappop(self._heap)
            entry.queued = False
            if not self._evictable(entry):
                continue
            now = self._priority(entry)
            if now > entry.priority:
                self.offer(entry)
                continue
            self.clock = max(self.clock, now)
            return entry
        return None

    def forget(self, entry: Entry) -> None:
        """`entry` is gone: when most of the queue is of that kind, it is swept."""
        if entry.queued:
            self._stale += 1
            if self._stale > _SMALL and self._stale * 2 > len(self._heap):
                self.sweep()

    def sweep(self) -> None:
        """Drops all that may not be evicted now."""
        kept = []
        for entry in self._heap:
            entry.queued = self._evictable(entry)
            if entry.queued:
                kept.append(entry)
        self._heap = kept
        heapify(self._heap)
        self._stale = 0
