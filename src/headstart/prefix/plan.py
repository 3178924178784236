"""Where to resume a prompt: the decision, made of facts about the index and the live sequences."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from headstart.prefix.block import StateLayout
from headstart.prefix.report import Reason, Tier
from headstart.prefix.stops import PromptHints, Stop, StopKind, stops
from headstart.prefix.tokens import TokenRun, common_prefix

__all__ = [
    "LiveView",
    "Plan",
    "PromptHints",
    "Reason",
    "Rules",
    "Stop",
    "StopKind",
    "Stored",
    "Tier",
    "make_plan",
    "without_cache",
]


@dataclass(frozen=True, eq=False)
class LiveView:
    """A live sequence of the engine, as the planner sees it.

    `tokens`: what it has read, all of it. `window_start`: lowest token whose windowed rows the
    engine still has (0 without windowed planes). `busy`: running; it must not be cut.
    """

    seq: int
    namespace: bytes
    tokens: TokenRun
    window_start: int
    busy: bool


@dataclass(frozen=True, eq=False)
class Plan:
    """How to start reading `prompt`.

    `divergence`: longest prefix whose rows are all present somewhere (index or live sequence).
    `restore_at`: tokens that need not be read. `tier`: LIVE (continue or cut sequence `live` in
    place), RAM (restore stored rows) or NONE (from zero).
    `exact`: `restore_at` is the prompt's length and its end logits are stored.
    `stops`: where prefill pauses for a checkpoint, ascending, all > `restore_at`; empty unless the
    layout is recurrent.
    `reason`: why less was restored than once was possible; None when nothing was lost.
    `fork_from`, `fork_at`: a live sequence that was not chosen (busy, or it cannot be cut there)
    shares the first `fork_at` tokens, which is more than the index holds. Storing what it has
    (rows, and for recurrent layouts a checkpoint if it stands at `fork_at`) and planning again,
    once, restores further.
    `window_rows_needed`, `checkpoint_needed`: what a LIVE cut must be given by `load`.
    `ssd_at`: where the SSD's state alone could resume. Above `restore_at` it is worth fetching.
    """

    namespace: bytes
    prompt: TokenRun
    divergence: int
    restore_at: int
    tier: Tier
    live: int | None = None
    exact: bool = False
    stops: tuple[Stop, ...] = ()
    reason: Reason | None = None
    fork_from: int | None = None
    fork_at: int = 0
    window_rows_needed: bool = False
    checkpoint_needed: bool = False
    ssd_at: int = 0


@dataclass(frozen=True)
class Rules:
    """What a plan has to keep to. `grid` > 0: restore only canonical rows, at its multiples."""

    layout: StateLayout
    checkpoint_interval: int = 0
    grid: int = 0


@dataclass(frozen=True, eq=False)
class Stored:
    """What the index says of one prompt.

    `length`: leading tokens whose rows are stored. `canonical_length`: those of them in whole
    blocks of canonical rows. `logits_at_end`: the logits at exactly the prompt's end are stored.
    `checkpoint_at_most(limit)`: the highest usable checkpoint at or below `limit`, 0 for none.
    `evicted_upto()`: how far the prompt was stored before something was evicted, as far as is
    remembered. `checkpoint_evicted(above, limit)`: whether one was in above+1 .. limit.
    `elsewhere()`: leading tokens stored under another namespace of the same tenant.
    """

    length: int
    canonical_length: int
    logits_at_end: bool
    checkpoint_at_most: Callable[[int], int]
    evicted_upto: Callable[[], int]
    checkpoint_evicted: Callable[[int, int], bool]
    elsewhere: Callable[[], int]


@dataclass(frozen=True)
class _Cut:
    """Sequence `seq` can be taken back to `at`, dropping `dropped` of its `length` tokens."""

    seq: int
    at: int
    length: int
    window_rows: bool
    checkpoint: bool

    @property
    def dropped(self) -> int:
        return self.length - self.at


def make_plan(
    namespace: bytes,
    prompt: TokenRun,
    stored: Stored,
    live: Iterable[LiveView],
    *,
    hints: PromptHints,
    rules: Rules,
) -> Plan:
    """Where to resume `prompt`. Decides only; nothing is read, moved or counted.

    A live sequence is cut in place when that restores further than stored rows do, or as far and
    at most half of it is lost. One that is busy is never cut.
    """
    length = len(prompt)
    shares = [(view, common_prefix(view.tokens, prompt)) for view in live if view.namespace == namespace]
    shares = [(view, shared) for view, shared in shares if shared]
    ram_at = stored_restore(stored, length, rules)
    cut = None if rules.grid else _best_cut(shares, stored, length, rules.layout)
    use_live = cut is not None and (cut.at > ram_at or (cut.at == ram_at and 2 * cut.dropped <= cut.length))
    restore_at = cut.at if cut is not None and use_live else ram_at
    fork_from, fork_at = _fork(shares, stored, length, restore_at, rules)
    reaches = [_reach(view, shared, stored, rules.layout) for view, shared in shares]
    divergence = max([stored.length, *reaches])
    chosen = cut if use_live else None
    return Plan(
        namespace=namespace,
        prompt=prompt,
        divergence=divergence,
        restore_at=restore_at,
        tier=Tier.LIVE if chosen else Tier.RAM if restore_at else Tier.NONE,
        live=chosen.seq if chosen else None,
        exact=restore_at == length > 0,
        stops=_stops(length, restore_at, divergence, hints, rules),
        reason=_reason(stored, length, divergence, restore_at, rules),
        fork_from=fork_from,
        fork_at=fork_at,
        window_rows_needed=chosen is not None and chosen.window_rows,
        checkpoint_needed=chosen is not None and chosen.checkpoint,
    )


def stored_restore(stored: Stored, length: int, rules: Rules) -> int:
    """Where stored state alone can resume."""
    recurrent = rules.layout.recurrent
    if rules.grid:
        limit = max(0, min(stored.canonical_length, length - 1)) // rules.grid * rules.grid
        return stored.checkpoint_at_most(limit) if recurrent else limit
    limit = length if stored.logits_at_end else max(0, min(stored.length, length - 1))
    return stored.checkpoint_at_most(limit) if recurrent else limit


def _best_cut(
    shares: Sequence[tuple[LiveView, int]], stored: Stored, length: int, layout: StateLayout
) -> _Cut | None:
    """The idle sequence that resumes furthest; of equal ones the one that loses least."""
    cuts = [
        cut
        for view, shared in shares
        if not view.busy
        for at in _cut_positions(view, shared, stored, length, layout)
        if (cut := _cut(view, at, stored, layout)) is not None
    ]
    return max(cuts, key=lambda cut: (cut.at, -cut.dropped), default=None)


def _cut_positions(
    view: LiveView, shared: int, stored: Stored, length: int, layout: StateLayout
) -> tuple[int, ...]:
    limit = length if stored.logits_at_end and shared == length else min(shared, length - 1)
    if not layout.recurrent:
        return (limit, min(limit, stored.length))
    here = (len(view.tokens),) if shared == len(view.tokens) <= limit else ()
    return (*here, stored.checkpoint_at_most(limit))


def _cut(view: LiveView, at: int, stored: Stored, layout: StateLayout) -> _Cut | None:
    if at <= 0:
        return None
    window_rows = not _window_is_live(view, at, layout)
    if window_rows and stored.length < at:
        return None
    standing = len(view.tokens)
    return _Cut(view.seq, at, standing, window_rows, checkpoint=layout.recurrent and at != standing)


def _window_is_live(view: LiveView, at: int, layout: StateLayout) -> bool:
    window = layout.window_tokens
    return not window or at == len(view.tokens) or view.window_start <= max(0, at - window)


def _reach(view: LiveView, shared: int, stored: Stored, layout: StateLayout) -> int:
    """How many shared tokens of a live sequence have all the rows a restore there would need."""
    return shared if _window_is_live(view, shared, layout) else min(shared, stored.length)


def _fork(
    shares: Sequence[tuple[LiveView, int]], stored: Stored, length: int, restore_at: int, rules: Rules
) -> tuple[int | None, int]:
    """The live sequence whose state is worth storing first, and how far it reaches."""
    best: tuple[int | None, int] = (None, 0)
    for view, shared in shares:
        reach = _reach(view, shared, stored, rules.layout)
        at = min(reach, length - 1)
        stands_there = rules.layout.recurrent and shared == len(view.tokens) == at and not rules.grid
        news = reach > stored.length or (stands_there and stored.checkpoint_at_most(at) < at)
        if news and at > max(restore_at, best[1]):
            best = (view.seq, at)
    return best


def _stops(
    length: int, restore_at: int, divergence: int, hints: PromptHints, rules: Rules
) -> tuple[Stop, ...]:
    if not rules.layout.recurrent:
        return ()
    return stops(
        length=length,
        restore_at=restore_at,
        divergence=divergence,
        hints=hints,
        interval=rules.checkpoint_interval,
        grid=rules.grid,
    )


def _reason(stored: Stored, length: int, divergence: int, restore_at: int, rules: Rules) -> Reason | None:
    if restore_at >= max(1, length - 1):
        return None
    if length <= 1:
        return Reason.TOO_SHORT
    if min(divergence, length - 1) > restore_at:
        return _gap_reason(stored, length, restore_at, rules)
    if stored.evicted_upto() > divergence:
        return Reason.EVICTED
    if restore_at:
        return None
    return Reason.OTHER_NAMESPACE if stored.elsewhere() > divergence else Reason.NO_PREFIX


def _gap_reason(stored: Stored, length: int, restore_at: int, rules: Rules) -> Reason:
    limit = min(stored.length, length - 1)
    if rules.grid:
        on_grid = min(stored.canonical_length, limit) // rules.grid * rules.grid
        return Reason.NO_CHECKPOINT if on_grid > restore_at else Reason.NOT_CANONICAL
    if limit <= restore_at:
        return Reason.BUSY
    evicted = stored.checkpoint_evicted(restore_at, limit)
    return Reason.EVICTED if evicted else Reason.NO_CHECKPOINT


def without_cache(namespace: bytes, prompt: TokenRun) -> Plan:
    """The plan of a request that wants no cache: everything from zero, no stops, reason DISABLED."""
    return Plan(namespace, prompt, divergence=0, restore_at=0, tier=Tier.NONE, reason=Reason.DISABLED)
