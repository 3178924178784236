"""The cache against a naive model, over sequences of operations that hypothesis finds."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headstart.prefix.block import StateLayout
from headstart.prefix.cache import NoMatch, PrefixCache
from headstart.prefix.plan import LiveView, Plan, StopKind
from headstart.prefix.report import Reason, Tier
from headstart.prefix.tokens import TokenRun, common_prefix, token_run
from tests.prefix.fake import (
    BLOCK,
    LAYOUTS,
    MY,
    check_books,
    check_restored,
    checkpoint_of,
    holdings,
    longest_stored,
    make_cache,
    plan_of,
    rows_of,
    store,
    view,
)

NAMES = (MY, b"other weights")
SMALL = settings(max_examples=60, deadline=None)

runs = st.lists(st.integers(0, 1), min_size=1, max_size=22).map(token_run)


@dataclass(frozen=True)
class Read:
    """A sequence that was read and stored."""

    tokens: TokenRun
    namespace: bytes
    chunks: list[int]
    checkpoints: frozenset[int]
    logits: bool


reads = st.builds(
    Read,
    tokens=runs,
    namespace=st.sampled_from(NAMES),
    chunks=st.lists(st.integers(1, 9), max_size=4),
    checkpoints=st.frozensets(st.integers(1, 22), max_size=4),
    logits=st.booleans(),
)


def feed(cache: PrefixCache, layout: StateLayout, read: Read) -> None:
    at = {position for position in read.checkpoints if position <= len(read.tokens)}
    store(
        cache,
        read.tokens,
        layout=layout,
        namespace=read.namespace,
        chunks=read.chunks,
        checkpoints=at if layout.recurrent else (),
        logits=read.logits,
    )


class Model:
    """What a perfect cache would hold after the same reads: whole sequences, compared one by one."""

    def __init__(self) -> None:
        self.runs: list[TokenRun] = []
        self.checkpoints: set[tuple[int, ...]] = set()
        self.ends: set[tuple[int, ...]] = set()

    def add(self, read: Read, layout: StateLayout) -> None:
        # A recorder starts where the rows stored already end; a checkpoint below is not taken again.
        known = longest_stored(read.tokens, self.runs)
        self.runs.append(read.tokens)
        if layout.recurrent:
            for position in read.checkpoints:
                if known <= position <= len(read.tokens):
                    self.checkpoints.add(tuple(read.tokens[:position].tolist()))
        if read.logits:
            self.ends.add(tuple(read.tokens.tolist()))

    def restore_at(self, prompt: TokenRun, layout: StateLayout) -> int:
        n = len(prompt)
        divergence = longest_stored(prompt, self.runs)
        limit = n if divergence == n and tuple(prompt.tolist()) in self.ends else min(divergence, n - 1)
        if not layout.recurrent:
            return limit
        return max(
            (p for p in range(1, limit + 1) if tuple(prompt[:p].tolist()) in self.checkpoints), default=0
        )


@pytest.mark.parametrize("name", LAYOUTS)
@given(done=st.lists(reads, max_size=7), prompts=st.lists(runs, min_size=1, max_size=4))
@SMALL
def test_plan_and_load_equal_the_naive_model(name: str, done: list[Read], prompts: list[TokenRun]) -> None:
    layout = LAYOUTS[name]
    cache = make_cache(layout)
    models = {namespace: Model() for namespace in NAMES}
    for read in done:
        feed(cache, layout, read)
        models[read.namespace].add(read, layout)
        check_books(holdings(cache))
    for prompt in [*prompts, *(read.tokens for read in done)]:
        for namespace in NAMES:
            plan = plan_of(cache, prompt, namespace=namespace)
            model = models[namespace]
            assert plan.divergence == longest_stored(prompt, model.runs)
            assert plan.restore_at == model.restore_at(prompt, layout)
            assert plan.exact == (plan.restore_at == len(prompt))
            check_load(cache, layout, plan)


def check_load(cache: PrefixCache, layout: StateLayout, plan: Plan) -> None:
    answer = cache.load(plan)
    if plan.tier is Tier.NONE:
        assert isinstance(answer, NoMatch)
    else:
        check_restored(layout, plan, answer)


@pytest.mark.parametrize("name", LAYOUTS)
@given(
    done=st.lists(reads, min_size=1, max_size=12),
    limit=st.integers(0, 6000),
    prompts=st.lists(runs, min_size=1, max_size=3),
)
@SMALL
def test_within_any_limit_the_books_are_right_and_the_state_too(
    name: str, done: list[Read], limit: int, prompts: list[TokenRun]
) -> None:
    layout = LAYOUTS[name]
    cache = make_cache(layout, ram_bytes=limit)
    read_so_far: dict[bytes, list[TokenRun]] = {namespace: [] for namespace in NAMES}
    for read in done:
        feed(cache, layout, read)
        read_so_far[read.namespace].append(read.tokens)
        check_books(holdings(cache))
        for prompt in [*prompts, read.tokens]:
            plan = plan_of(cache, prompt, namespace=read.namespace)
            assert plan.divergence <= longest_stored(prompt, read_so_far[read.namespace])
            check_load(cache, layout, plan)
            check_books(holdings(cache))


@pytest.mark.parametrize("name", LAYOUTS)
@given(
    sequences=st.lists(runs, min_size=2, max_size=4),
    order=st.lists(st.tuples(st.integers(0, 3), st.integers(1, 6), st.booleans()), max_size=25),
    limit=st.sampled_from([3000, 8000, 10_000_000]),
)
@SMALL
def test_recorders_that_take_turns_keep_the_books_and_each_others_rows(
    name: str, sequences: list[TokenRun], order: list[tuple[int, int, bool]], limit: int
) -> None:
    layout = LAYOUTS[name]
    cache = make_cache(layout, ram_bytes=limit)
    open_ones = [cache.recorder(MY, tokens[:0]) for tokens in sequences]
    for which, size, flush in order:
        tokens, recorder = sequences[which % len(sequences)], open_ones[which % len(sequences)]
        at = recorder.position
        stop = min(len(tokens), at + size)

        recorder.record(tokens[at:stop], rows_of(layout, MY, tokens, at, stop), canonical=False)
        if flush:
            recorder.flush()
        if flush and layout.recurrent and recorder.active and recorder.position:
            recorder.put_checkpoint(checkpoint_of(MY, tokens, recorder.position), StopKind.GRID)
        check_books(holdings(cache))
        check_load(cache, layout, plan_of(cache, tokens))
    for tokens, recorder in zip(sequences, open_ones, strict=True):
        reached, stored_all = recorder.position, recorder.active
        recorder.close()
        check_books(holdings(cache))
        plan = plan_of(cache, tokens)
        if stored_all and limit > 100_000:
            assert plan.divergence >= reached
        check_load(cache, layout, plan)
    assert not holdings(cache)._pins
    assert not holdings(cache)._reserved


views = st.builds(
    view,
    seq=st.integers(1, 9),
    tokens=runs,
    namespace=st.sampled_from(NAMES),
    window_start=st.integers(0, 20),
    busy=st.booleans(),
)


@pytest.mark.parametrize("name", LAYOUTS)
@given(
    done=st.lists(reads, max_size=5),
    live=st.lists(views, max_size=4, unique_by=lambda v: v.seq),
    prompt=runs,
)
@SMALL
def test_live_sequences_are_used_only_as_far_as_they_can_be(
    name: str, done: list[Read], live: list[LiveView], prompt: TokenRun
) -> None:
    layout = LAYOUTS[name]
    cache = make_cache(layout)
    for read in done:
        feed(cache, layout, read)
    without = plan_of(cache, prompt)
    plan = plan_of(cache, prompt, live=live)
    assert plan.restore_at >= without.restore_at
    assert plan.divergence >= without.divergence
    if plan.live is not None:
        assert plan.tier is Tier.LIVE
        check_live_choice(layout, plan, without, {v.seq: v for v in live})
    if plan.tier is Tier.NONE:
        assert plan.restore_at == 0
    else:
        check_restored(layout, plan, cache.load(plan))
    if plan.fork_from is not None:
        fork = {v.seq: v for v in live}[plan.fork_from]
        assert fork.namespace == MY
        assert plan.restore_at < plan.fork_at <= min(common_prefix(fork.tokens, prompt), len(prompt) - 1)


def check_live_choice(layout: StateLayout, plan: Plan, without: Plan, by_seq: dict[int, LiveView]) -> None:
    assert plan.live is not None
    chosen = by_seq[plan.live]
    at = plan.restore_at
    assert not chosen.busy and chosen.namespace == MY
    assert 0 < at <= common_prefix(chosen.tokens, plan.prompt)
    stands = at == len(chosen.tokens)
    if layout.window_tokens and not stands and not plan.window_rows_needed:
        assert chosen.window_start <= max(0, at - layout.window_tokens)
    if layout.recurrent:
        assert stands or plan.checkpoint_needed
    if at == without.restore_at:
        assert 2 * (len(chosen.tokens) - at) <= len(chosen.tokens)


@given(done=st.lists(reads, max_size=6), prompt=runs)
@SMALL
def test_a_reason_is_given_exactly_when_something_was_lost_or_nothing_restored(
    done: list[Read], prompt: TokenRun
) -> None:
    layout = LAYOUTS["recurrent"]
    cache = make_cache(layout)
    for read in done:
        feed(cache, layout, read)
    plan = plan_of(cache, prompt)
    gap = min(plan.divergence, len(prompt) - 1) - plan.restore_at
    assert (plan.reason is not None) == (gap > 0 or plan.restore_at == 0)
    if len(prompt) == 1 and plan.restore_at == 0:
        assert plan.reason is Reason.TOO_SHORT
    elif gap > 0:
        assert plan.reason is Reason.NO_CHECKPOINT


@given(
    done=st.lists(st.tuples(runs, st.lists(st.booleans(), min_size=6, max_size=6)), max_size=6),
    prompt=runs,
    name=st.sampled_from(["dense", "recurrent"]),
)
@SMALL
def test_reproducible_restores_only_canonical_rows_on_the_grid(
    done: list[tuple[TokenRun, list[bool]]], prompt: TokenRun, name: str
) -> None:

    layout, grid = LAYOUTS[name], 2 * BLOCK
    cache = make_cache(layout, canonical_grid=grid)
    canonical: list[TokenRun] = []
    for tokens, flags in done:
        recorder = cache.recorder(MY, tokens)
        clean = recorder.position
        for flag in flags:
            at = recorder.position
            stop = min(len(tokens), at + BLOCK)
            recorder.record(tokens[at:stop], rows_of(layout, MY, tokens, at, stop), canonical=flag)
            clean = stop if flag and clean == at else clean
            if layout.recurrent and stop and recorder.position == stop:
                recorder.put_checkpoint(checkpoint_of(MY, tokens, stop), StopKind.GRID)
        recorder.close()
        check_books(holdings(cache))
        canonical.append(tokens[: clean // BLOCK * BLOCK])
    plan = plan_of(cache, prompt, live=[view(1, prompt)])
    assert plan.live is None and not plan.exact
    assert plan.restore_at % grid == 0
    best = max(0, min(longest_stored(prompt, canonical), len(prompt) - 1)) // grid * grid
    assert plan.restore_at == best if not layout.recurrent else plan.restore_at <= best
    check_load(cache, layout, plan)
