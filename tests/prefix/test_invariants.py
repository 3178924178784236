"""The invariants of docs/design/prefix.md that the prefix core keeps, one test each.

Numbers are those of the list there. Every test names the guarantee it would lose.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headstart.prefix.block import RowBytes
from headstart.prefix.cache import Failed, NoMatch, PrefixCache, Restored
from headstart.prefix.faults import Fault, FaultInjector
from headstart.prefix.keys import namespace_key
from headstart.prefix.plan import StopKind
from headstart.prefix.report import Reason, Tier, report
from headstart.prefix.tokens import TokenRun, common_prefix
from tests.prefix.fake import (
    BLOCK,
    DENSE,
    LAYOUTS,
    MY,
    PLENTY,
    RECURRENT,
    WINDOW,
    check_books,
    check_restored,
    checkpoint_of,
    counting,
    glue,
    holdings,
    make_cache,
    plan_of,
    rows_of,
    run,
    store,
    view,
)

TOKENS = counting(0, 30)


def edited(at: int) -> TokenRun:
    """The stored prompt with another token at `at`."""
    return glue(TOKENS[:at], run(999), TOKENS[at + 1 :])


@pytest.mark.parametrize("at", range(30))
def test_invariant_1_rows_below_the_divergence_are_used_inside_a_block_too(at: int) -> None:
    cache = make_cache()
    store(cache, TOKENS)
    plan = plan_of(cache, edited(at))
    assert plan.restore_at == plan.divergence == at
    if at:
        check_restored(DENSE, plan, cache.load(plan))


@pytest.mark.parametrize("at", [1, 255, 256, 257, 511, 512, 513, 699])
def test_invariant_1_holds_at_the_edges_of_blocks_of_the_usual_size(at: int) -> None:
    cache = make_cache(block_tokens=256)
    tokens = counting(0, 700)
    store(cache, tokens, chunks=[300, 1, 211, 100])
    plan = plan_of(cache, glue(tokens[:at], run(999), tokens[at + 1 :]))
    assert plan.restore_at == plan.divergence == at
    check_restored(DENSE, plan, cache.load(plan))


def test_invariant_1_token_ids_decide_never_only_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headstart.prefix.tree.chain_key", lambda parent, tokens: b"the same for all")
    cache = make_cache()
    store(cache, TOKENS)
    store(cache, edited(9))
    for prompt in (TOKENS, edited(9), edited(3), edited(17)):
        plan = plan_of(cache, prompt)
        check_restored(DENSE, plan, cache.load(plan))
    assert plan_of(cache, edited(3)).divergence == 3


@given(checkpoints=st.sets(st.integers(1, 30), max_size=6), at=st.integers(1, 29))
@settings(deadline=None, max_examples=60)
def test_invariant_2_recurrent_layers_stand_where_the_rows_stand(checkpoints: set[int], at: int) -> None:
    cache = make_cache(RECURRENT)
    store(cache, TOKENS, layout=RECURRENT, checkpoints=checkpoints)
    plan = plan_of(cache, edited(at))
    assert plan.restore_at == max((c for c in checkpoints if c <= at), default=0)
    if plan.restore_at:
        check_restored(RECURRENT, plan, cache.load(plan))
    for live in (view(1, TOKENS), view(1, edited(at)[:at])):
        cut = plan_of(cache, edited(at), live=[live])
        if cut.tier is Tier.LIVE and cut.restore_at != len(live.tokens):
            assert cut.checkpoint_needed and cut.restore_at in checkpoints


@pytest.mark.parametrize("name", ["dense", "window"])
@pytest.mark.parametrize("tier", [Tier.RAM, Tier.LIVE])
def test_invariant_3_gap_0_for_every_divergence_from_every_tier(name: str, tier: Tier) -> None:
    layout = LAYOUTS[name]
    for at in range(1, 30):
        cache = make_cache(layout)
        live = []
        if tier is Tier.LIVE:
            live = [view(1, TOKENS[: at + 1], window_start=0)]
        else:
            store(cache, TOKENS, layout=layout)
        plan = plan_of(cache, edited(at), live=live)
        assert (plan.tier, plan.restore_at, plan.divergence, plan.reason) == (tier, at, at, None)
        assert report(plan, restored=plan.restore_at).gap == 0


@pytest.mark.parametrize("at", [1, 4, 7, 18, 29])
def test_invariant_3_a_replayed_prompt_leaves_a_checkpoint_for_the_second_visit(at: int) -> None:
    cache = make_cache(RECURRENT)
    store(cache, TOKENS, layout=RECURRENT)
    first = plan_of(cache, edited(at))
    assert first.stops[0].position == at and first.reason is Reason.NO_CHECKPOINT
    tokens = edited(at)
    store(cache, tokens, layout=RECURRENT, checkpoints=[s.position for s in first.stops])
    second = plan_of(cache, glue(TOKENS[:at], run(555, 556)))
    assert (second.restore_at, second.divergence, second.reason) == (at, at, None)
    check_restored(RECURRENT, second, cache.load(second))


@pytest.mark.parametrize("name", LAYOUTS)
def test_invariant_4_one_token_is_computed_unless_the_end_logits_are_stored(name: str) -> None:
    layout = LAYOUTS[name]
    cache = make_cache(layout)
    store(cache, TOKENS, layout=layout, checkpoints=[10, 29] if layout.recurrent else [])
    assert plan_of(cache, TOKENS).restore_at == 29
    again = make_cache(layout)
    store(again, TOKENS, layout=layout, checkpoints=[30] if layout.recurrent else [], logits=True)
    for live in ([], [view(1, TOKENS, window_start=28)]):
        exact = plan_of(again, TOKENS, live=live)
        assert exact.exact and exact.restore_at == 30
        check_restored(layout, exact, again.load(exact))
    assert not plan_of(again, TOKENS[:29]).exact
    assert not plan_of(again, counting(0, 31)).exact


def test_invariant_6_stored_state_never_changes() -> None:
    cache = make_cache()
    store(cache, TOKENS, logits=True)
    plan = plan_of(cache, TOKENS)
    answer = cache.load(plan)
    assert isinstance(answer, Restored) and answer.logits is not None
    answer.logits[:] = 0
    with pytest.raises(ValueError, match="read-only"):
        answer.rows[0].planes[0][:] = 0
    other = cache.recorder(MY, run())
    zeros = RowBytes(tuple(np.zeros((30, plane.row_bytes), np.uint8) for plane in DENSE.planes))
    other.record(TOKENS, zeros, canonical=True)
    other.put_logits(np.zeros(5, np.float32))
    other.close()
    check_restored(DENSE, plan, cache.load(plan))


def test_invariant_7_state_is_never_used_outside_its_namespace() -> None:
    cache = make_cache()
    before, after = namespace_key({"weights": "a"}, ""), namespace_key({"weights": "b"}, "")
    store(cache, TOKENS, namespace=before)
    plan = plan_of(cache, TOKENS, namespace=after, live=[view(1, TOKENS, namespace=before)])
    assert (plan.restore_at, plan.divergence, plan.tier) == (0, 0, Tier.NONE)
    assert plan.fork_from is None and plan.reason is Reason.OTHER_NAMESPACE
    store(cache, TOKENS, namespace=after)
    for namespace in (before, after):
        mine = plan_of(cache, TOKENS, namespace=namespace)
        check_restored(DENSE, mine, cache.load(mine))


@pytest.mark.parametrize("fault", list(Fault))
@pytest.mark.parametrize("read", range(4))
def test_invariant_8_a_failed_read_is_a_miss_with_a_reason_and_wipes_nothing(fault: Fault, read: int) -> None:
    faults = FaultInjector()
    cache = PrefixCache(DENSE, ram_bytes=PLENTY, block_tokens=BLOCK, faults=faults)
    store(cache, TOKENS)
    other = counting(500, 520)
    store(cache, other)
    plan = plan_of(cache, TOKENS)
    faults.spoil(fault, after_reads=read)
    answer = cache.load(plan)
    assert isinstance(answer, Failed)
    assert answer.reason is (Reason.IO_ERROR if fault is Fault.FAIL else Reason.CORRUPT)
    assert cache.statistics().counts.blocks == 8 + 5
    after = plan_of(cache, TOKENS)
    assert after.restore_at == (29 if fault is Fault.FAIL else read * BLOCK)
    if after.restore_at:
        check_restored(DENSE, after, cache.load(after))
    untouched = plan_of(cache, other)
    check_restored(DENSE, untouched, cache.load(untouched))


def test_invariant_9_loading_answers_one_of_three() -> None:
    faults = FaultInjector()
    cache = PrefixCache(DENSE, ram_bytes=PLENTY, block_tokens=BLOCK, faults=faults)
    assert type(cache.load(plan_of(cache, TOKENS))) is NoMatch
    store(cache, TOKENS)
    assert type(cache.load(plan_of(cache, TOKENS))) is Restored
    faults.spoil(Fault.FAIL)
    assert type(cache.load(plan_of(cache, TOKENS))) is Failed


@pytest.mark.parametrize("limit", [0, 500, 1500, 4000, 20_000])
def test_invariant_10_limits_are_hard_and_checkpoints_and_logits_count(limit: int) -> None:
    cache = make_cache(RECURRENT, ram_bytes=limit)
    running = [cache.recorder(MY, run()) for _ in range(3)]
    for step in range(0, 60, 3):
        for number, recorder in enumerate(running):
            tokens = counting(number * 1000, number * 1000 + step + 3)
            if recorder.active and recorder.position == step:
                recorder.record(
                    tokens[step:], rows_of(RECURRENT, MY, tokens, step, step + 3), canonical=False
                )
                check_books(holdings(cache))
            if recorder.active:
                recorder.put_checkpoint(checkpoint_of(MY, tokens, recorder.position), StopKind.MESSAGE)
                recorder.put_logits(np.ones(5, np.float32))
                check_books(holdings(cache))
    for recorder in running:
        recorder.close()
        check_books(holdings(cache))


def test_invariant_15_two_tenants_never_share_state() -> None:
    cache = make_cache()
    parts = {"weights": "a"}
    one, two = namespace_key(parts, "key one"), namespace_key(parts, "key two")
    store(cache, TOKENS, namespace=one)
    plan = plan_of(cache, TOKENS, namespace=two, live=[view(1, TOKENS, namespace=one)])
    assert (plan.restore_at, plan.divergence, plan.fork_from) == (0, 0, None)
    assert plan.reason is Reason.NO_PREFIX, "must not tell that another tenant has these tokens"


def test_invariant_16a_an_exact_repeat_gets_the_rows_and_logits_of_the_first_run() -> None:
    cache = make_cache()
    store(cache, TOKENS, logits=True)
    store(cache, edited(29))
    store(cache, edited(13))
    store(cache, counting(0, 50))
    plan = plan_of(cache, TOKENS)
    assert plan.exact
    check_restored(DENSE, plan, cache.load(plan))


@pytest.mark.parametrize("name", ["dense", "recurrent"])
def test_invariant_16b_reproducible_uses_canonical_rows_on_the_grid_only(name: str) -> None:
    layout, grid = LAYOUTS[name], 2 * BLOCK
    cache = make_cache(layout, canonical_grid=grid)
    recorder = cache.recorder(MY, run())
    for at in range(0, 20, BLOCK):
        recorder.record(TOKENS[at : at + 4], rows_of(layout, MY, TOKENS, at, at + 4), canonical=True)
        if layout.recurrent:
            recorder.put_checkpoint(checkpoint_of(MY, TOKENS, at + 4), StopKind.GRID)
    recorder.record(TOKENS[20:], rows_of(layout, MY, TOKENS, 20, 30), canonical=False)
    recorder.put_logits(np.ones(5, np.float32))
    recorder.close()
    plan = plan_of(cache, TOKENS, live=[view(1, TOKENS)])
    assert (plan.restore_at, plan.exact, plan.live) == (16, False, None)
    assert (plan.divergence, plan.reason) == (30, Reason.NOT_CANONICAL)
    check_restored(layout, plan, cache.load(plan))
    made = report(plan, restored=16)
    assert (made.restored, made.replayed, made.new) == (16, 13, 1), "what it cost is told"
    assert all(stop.position % grid == 0 for stop in plan.stops)


def test_invariant_16b_checkpoints_are_used_on_the_grid_and_from_canonical_runs_only() -> None:
    cache = make_cache(RECURRENT, canonical_grid=2 * BLOCK)
    for canonical in (False, True):
        recorder = cache.recorder(MY, run())
        recorder.record(TOKENS, rows_of(RECURRENT, MY, TOKENS, 0, 30), canonical=canonical)
        at = 12 if canonical else 16
        recorder.put_checkpoint(checkpoint_of(MY, TOKENS, at), StopKind.MESSAGE)
        recorder.close()
    plan = plan_of(cache, TOKENS)
    assert (plan.restore_at, plan.reason) == (0, Reason.NO_CHECKPOINT)
    again = cache.recorder(MY, TOKENS)
    again.put_checkpoint(checkpoint_of(MY, TOKENS, 16), StopKind.MESSAGE)
    again.close()
    second = plan_of(cache, TOKENS)
    assert second.restore_at == 16
    check_restored(RECURRENT, second, cache.load(second))


def test_window_layouts_are_cut_live_only_with_their_window() -> None:
    cache = make_cache(WINDOW)
    for at in range(1, 30):
        plan = plan_of(cache, edited(at), live=[view(1, TOKENS, window_start=15)])
        first = max(0, at - WINDOW.window_tokens)
        assert (plan.tier is Tier.LIVE) == (first >= 15)
        assert common_prefix(plan.prompt, TOKENS) == at
