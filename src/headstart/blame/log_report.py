"""What a server's log amounts to: turns, what they reused and lost, and what the server did meanwhile.

Fed with events one by one; its memory does not grow with their number.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from headstart.blame.log_tallies import (
    KEPT_KINDS,
    KEPT_TURNS,
    LEAST_GAP,
    Grain,
    Intervals,
    Loss,
    NumberedTurn,
    Points,
    Totals,
)
from headstart.blame.logs.events import (
    CacheState,
    Checkpoint,
    Diverged,
    Evicted,
    Fact,
    FullReread,
    Interval,
    Loaded,
    LogEvent,
    NotStored,
    Picked,
    Restored,
    Started,
    TooLarge,
    Truncated,
    Turn,
)

SMALL_SHARE = 0.25
"""A prompt shorter than this share of the one before it in its slot is a side request."""
ROUNDED_PLACE = 0.02


@dataclass
class LogReport:
    """All that is kept of a log."""

    servers: list[str] = field(default_factory=list)
    facts: dict[str, str] = field(default_factory=dict)
    totals: Totals = field(default_factory=Totals)
    gap: Loss = field(default_factory=Loss)
    changed: Loss = field(default_factory=Loss)
    replaced: Loss = field(default_factory=Loss)
    side: Loss = field(default_factory=Loss)
    places: Counter[int] = field(default_factory=Counter)
    grain: Grain = field(default_factory=Grain)
    points: Points = field(default_factory=Points)
    intervals: Intervals = field(default_factory=Intervals)
    evictions: int = 0
    largest_evicted_mib: float = 0.0
    too_large: TooLarge | None = None
    fullest: CacheState | None = None
    cuts: int = 0
    worst_cut: Truncated | None = None
    halves: int = 0
    loads: int = 0
    load_s: float = 0.0
    contexts: list[int] = field(default_factory=list)
    hints: int = 0
    false_hints: int = 0
    not_stored: Counter[str] = field(default_factory=Counter)
    diverged: Diverged | None = None
    kept: list[tuple[int, int, NumberedTurn]] = field(default_factory=list)
    _long: dict[int | None, int] = field(default_factory=dict)
    _last_long: int = 0
    _pushed_out: int = 0

    @property
    def turns(self) -> list[NumberedTurn]:
        """The most expensive turns, at most KEPT_TURNS of them, in order."""
        return [row for _, _, row in sorted(self.kept, reverse=True)]

    def seconds(self, tokens: int) -> float | None:
        """What reading so many tokens takes this server, as it was measured."""
        each = self.totals.ms_a_token
        return None if each is None else tokens * each / 1000

    def take(self, event: LogEvent) -> None:
        """Adds one event."""
        handle = _TAKES.get(type(event))
        if handle is not None:
            handle(self, event)

    def _turn(self, turn: Turn) -> None:
        totals = self.totals
        totals.turns += 1
        self._server(turn.server)
        gap = _gap(turn)
        row = NumberedTurn(totals.turns, turn, gap, _changed(turn))
        self._count(turn)
        if turn.hint:
            self.false_hints += (turn.cached or 0) > 0
        if turn.truncated:
            self._cut(Truncated(prompt_tokens=turn.prompt_tokens))
        self._judge(row)
        if len(self.kept) < KEPT_TURNS:
            heapq.heappush(self.kept, (row.cost, -row.number, row))
        elif row.cost > self.kept[0][0]:
            heapq.heapreplace(self.kept, (row.cost, -row.number, row))

    def _count(self, turn: Turn) -> None:
        totals = self.totals
        if turn.read is not None and turn.prompt_ms is not None:
            totals.timed_read += turn.read
            totals.read_ms += turn.prompt_ms
        if turn.read is not None:
            totals.read += turn.read
        if turn.prompt_tokens is None or turn.cached is None:
            return
        totals.counted += 1
        totals.prompt_tokens += turn.prompt_tokens
        totals.cached += turn.cached
        totals.longest = max(totals.longest, turn.prompt_tokens)
        if totals.counted > 1 and turn.prompt_tokens >= 256:
            totals.later += 1
            totals.later_cached += turn.cached
        context = self.contexts[-1] if self.contexts else 0
        half = context // 2
        self.halves += turn.server == "ollama" and half > 0 and half <= turn.prompt_tokens <= half + 8

    def _judge(self, row: NumberedTurn) -> None:
        """Adds what the turn lost to the cause that took it."""
        turn = row.turn
        if row.gap is not None and row.gap > LEAST_GAP and turn.cached is not None:
            self.gap.add(row.gap, row)
            if turn.cached:
                self.grain.add(turn.cached)
        total, cached = turn.prompt_tokens, turn.cached
        if total is None or cached is None:
            return
        before = self._long.get(turn.slot, 0)
        small = total < SMALL_SHARE * before
        if small and cached < total and turn.picked is not Picked.SIMILARITY:
            self._pushed_out = max(self._pushed_out, before)
        elif self._pushed_out and total >= 0.9 * self._pushed_out:
            self._returned(row, cached, total)
        elif row.changed is not None and row.changed > max(256, 0.05 * total):
            self.changed.add(row.changed, row)
            self._place(turn.shared or 0)
        elif turn.shared_most is not None and cached <= turn.shared_most and total >= 512:
            lost = min(self._last_long, total) - turn.shared_most
            if lost > 0.5 * total:
                self.replaced.add(lost, row)
        if not small and (turn.slot in self._long or len(self._long) < KEPT_KINDS):
            self._long[turn.slot] = self._last_long = total

    def _returned(self, row: NumberedTurn, cached: int, total: int) -> None:
        lost = min(self._pushed_out, total) - max(cached, row.turn.shared or 0)
        if lost > 0.5 * self._pushed_out:
            self.side.add(lost, row)
        self._pushed_out = 0

    def _place(self, shared: int) -> None:
        """Places are counted within two in a hundred, as similarities are rounded."""
        near = next((one for one in self.places if abs(one - shared) <= ROUNDED_PLACE * max(one, 50)), shared)
        if near in self.places or len(self.places) < KEPT_KINDS:
            self.places[near] += 1

    def _server(self, name: str) -> None:
        if name not in self.servers:
            self.servers.append(name)

    def _started(self, event: Started) -> None:
        self._server(event.server)
        self.loads += 1
        if event.context_tokens:
            self._context(event.context_tokens)

    def _context(self, tokens: int) -> None:
        if len(self.contexts) < KEPT_KINDS and (not self.contexts or self.contexts[-1] != tokens):
            self.contexts.append(tokens)

    def _fact(self, event: Fact) -> None:
        self.facts[event.name] = event.value
        if event.name == "context_tokens" and event.value.isdecimal():
            self._context(int(event.value))

    def _loaded(self, event: Loaded) -> None:
        if self.loads > 1 and event.seconds:
            self.load_s += event.seconds

    def _evicted(self, event: Evicted) -> None:
        self.evictions += event.entries
        self.largest_evicted_mib = max(self.largest_evicted_mib, event.mib or 0.0)

    def _state(self, event: CacheState) -> None:
        if self.fullest is None or event.mib > self.fullest.mib:
            self.fullest = event

    def _cut(self, event: Truncated) -> None:
        self.cuts += 1
        if self.worst_cut is None or (event.prompt_tokens or 0) > (self.worst_cut.prompt_tokens or 0):
            self.worst_cut = event

    def _interval(self, event: Interval) -> None:
        seen = self.intervals
        seen.fullest = max(seen.fullest, event.used_share or 0.0)
        if event.prompt_per_s > 0:
            seen.busy += 1
        if event.hit_share is not None:
            seen.last_hit_share = event.hit_share
            seen.never_hit = seen.never_hit and event.hit_share == 0

    def _full(self, event: FullReread) -> None:
        self.hints += 1

    def _restored(self, event: Restored) -> None:
        self.points.restored += 1

    def _too_large(self, event: TooLarge) -> None:
        if self.too_large is None or event.mib > self.too_large.mib:
            self.too_large = event

    def _lost(self, event: NotStored) -> None:
        if event.why in self.not_stored or len(self.not_stored) < KEPT_KINDS:
            self.not_stored[event.why] += 1

    def _point(self, event: Checkpoint) -> None:
        self.points.take(event)

    def _diverged(self, event: Diverged) -> None:
        self.diverged = event


def report_of(events: Iterable[LogEvent]) -> LogReport:
    """What the events amount to."""
    report = LogReport()
    take = report.take
    for event in events:
        take(event)
    return report


def _gap(turn: Turn) -> int | None:
    if turn.shared is None or turn.cached is None:
        return None
    return max(0, turn.shared - turn.shared_within - turn.cached)


def _changed(turn: Turn) -> int | None:
    """Tokens behind the divergence that were held and, by the prompt's length, are needed again."""
    if turn.shared is None or turn.held is None or turn.prompt_tokens is None:
        return None
    return max(0, min(turn.held, turn.prompt_tokens) - turn.shared)


_TAKES: Mapping[type, Callable[[LogReport, Any], None]] = {
    Turn: LogReport._turn,
    Started: LogReport._started,
    Fact: LogReport._fact,
    Loaded: LogReport._loaded,
    Evicted: LogReport._evicted,
    CacheState: LogReport._state,
    Truncated: LogReport._cut,
    Interval: LogReport._interval,
    FullReread: LogReport._full,
    Restored: LogReport._restored,
    TooLarge: LogReport._too_large,
    NotStored: LogReport._lost,
    Checkpoint: LogReport._point,
    Diverged: LogReport._diverged,
}
