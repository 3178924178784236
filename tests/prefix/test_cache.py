"""PrefixCache: what loading answers, settings that cannot work, statistics."""

from __future__ import annotations

import logging

import pytest

from headstart.errors import ConfigError
from headstart.prefix.cache import Failed, NoMatch, PrefixCache, Restored
from headstart.prefix.faults import Fault, FaultInjector
from headstart.prefix.keys import namespace_key
from headstart.prefix.plan import StopKind
from headstart.prefix.report import Reason, Tier
from headstart.prefix.tree import Node
from tests.prefix.fake import (
    BLOCK,
    DENSE,
    MY,
    PLENTY,
    RECURRENT,
    WINDOW,
    check_books,
    check_restored,
    counting,
    entries,
    glue,
    holdings,
    make_cache,
    plan_of,
    run,
    store,
    view,
)


def faulty(layout: object = DENSE) -> tuple[PrefixCache, FaultInjector]:
    faults = FaultInjector()
    cache = PrefixCache(layout, ram_bytes=PLENTY, block_tokens=BLOCK, faults=faults)  # type: ignore[arg-type]
    return cache, faults


def test_nothing_stored_is_no_match() -> None:
    cache = make_cache()
    assert cache.load(plan_of(cache, counting(0, 9))) == NoMatch(Reason.NO_PREFIX)


def test_a_plan_overtaken_by_eviction_is_no_match_and_counted() -> None:
    cache = make_cache(ram_bytes=6000)
    store(cache, counting(0, 9))
    plan = plan_of(cache, counting(0, 9))
    assert plan.tier is Tier.RAM
    for number in range(1, 40):
        store(cache, counting(number * 100, number * 100 + 20))
    assert cache.load(plan) == NoMatch(Reason.EVICTED)
    assert cache.statistics().failures == {Reason.EVICTED: 1}


def test_live_plans_get_what_the_cut_needs_and_nothing_else() -> None:
    cache = make_cache(WINDOW)
    store(cache, counting(0, 20), layout=WINDOW)
    standing = cache.load(plan_of(cache, counting(0, 25), live=[view(1, counting(0, 20), window_start=18)]))
    assert isinstance(standing, Restored)
    assert (standing.rows, standing.window_rows, standing.nbytes) == ([], None, 0)
    prompt = glue(counting(0, 15), run(99, 98))
    plan = plan_of(cache, prompt, live=[view(1, counting(0, 20), window_start=18)])
    answer = cache.load(plan)
    check_restored(WINDOW, plan, answer)
    assert isinstance(answer, Restored)
    assert answer.window_rows is not None and len(answer.window_rows) == WINDOW.window_tokens
    assert answer.nbytes == WINDOW.window_tokens * WINDOW.row_bytes


def test_bytes_of_everything_handed_out_are_reported() -> None:
    cache = make_cache(RECURRENT)
    store(cache, counting(0, 9), layout=RECURRENT, checkpoints=[9], logits=True)
    answer = cache.load(plan_of(cache, counting(0, 9)))
    assert isinstance(answer, Restored) and answer.logits is not None
    assert answer.nbytes == 9 * RECURRENT.row_bytes + 24 + answer.logits.nbytes


def test_a_failed_read_is_answered_as_failed_and_works_again_after() -> None:
    cache, faults = faulty()
    store(cache, counting(0, 9))
    plan = plan_of(cache, counting(0, 9))
    faults.spoil(Fault.FAIL, after_reads=1)
    answer = cache.load(plan)
    assert isinstance(answer, Failed) and answer.reason is Reason.IO_ERROR
    check_restored(DENSE, plan, cache.load(plan))
    assert cache.statistics().failures == {Reason.IO_ERROR: 1}


@pytest.mark.parametrize("fault", [Fault.TRUNCATE, Fault.LOSE])
def test_a_damaged_block_is_not_used_again_and_can_be_filled_again(fault: Fault) -> None:
    cache, faults = faulty()
    tokens = counting(0, 20)
    store(cache, tokens)
    faults.spoil(fault, after_reads=1)
    answer = cache.load(plan_of(cache, tokens))
    assert isinstance(answer, Failed) and answer.reason is Reason.CORRUPT
    check_books(holdings(cache))
    assert plan_of(cache, tokens).restore_at == BLOCK
    assert holdings(cache).counts.blocks == 5
    store(cache, tokens[:8], chunks=[1, 1, 1, 1])
    plan = plan_of(cache, tokens)
    assert plan.restore_at == 19
    check_restored(DENSE, plan, cache.load(plan))
    check_books(holdings(cache))


def test_a_lost_block_waits_for_all_its_rows() -> None:
    cache, faults = faulty()
    store(cache, counting(0, 12))
    faults.spoil(Fault.LOSE)
    cache.load(plan_of(cache, counting(0, 12)))
    recorder = store(cache, counting(0, 2), close=False)
    recorder.flush()
    assert plan_of(cache, counting(0, 12)).divergence == 0
    assert recorder.active and recorder.position == 2
    check_books(holdings(cache))
    recorder.close()
    check_books(holdings(cache))


def test_a_damaged_leaf_is_dropped() -> None:
    cache, faults = faulty()
    store(cache, counting(0, 6))
    faults.spoil(Fault.LOSE, after_reads=1)
    assert isinstance(cache.load(plan_of(cache, counting(0, 6))), Failed)
    assert holdings(cache).counts.blocks == 1
    assert holdings(cache).counts.lost == 1
    check_books(holdings(cache))


@pytest.mark.parametrize("reads_before", [3, 4])
def test_a_damaged_checkpoint_or_logits_is_dropped(reads_before: int) -> None:
    cache, faults = faulty(RECURRENT)
    store(cache, counting(0, 9), layout=RECURRENT, checkpoints=[6, 9], logits=True)
    plan = plan_of(cache, counting(0, 9))
    assert plan.exact
    faults.spoil(Fault.TRUNCATE, after_reads=reads_before)
    assert isinstance(cache.load(plan), Failed)
    after = plan_of(cache, counting(0, 9))
    assert after.restore_at == 6
    check_restored(RECURRENT, after, cache.load(after))
    check_books(holdings(cache))


def test_an_entry_larger_than_the_limit_is_refused_with_a_log_line(caplog: pytest.LogCaptureFixture) -> None:
    cache = make_cache(RECURRENT, ram_bytes=8000)
    store(cache, counting(0, 20), layout=RECURRENT)
    before = holdings(cache).counts.blocks
    recorder = cache.recorder(MY, counting(0, 20))
    with caplog.at_level(logging.WARNING):
        assert not holdings(cache).add_mark(*recorder._place(20), StopKind.HEAD, bytes(9000), canonical=False)
    assert "not stored: the RAM cache holds 8000 bytes in all" in caplog.text
    assert holdings(cache).counts.blocks == before
    assert holdings(cache).counts.refused == 1


def test_an_entry_that_cannot_fit_beside_what_is_in_use_displaces_nothing() -> None:
    cache = make_cache(RECURRENT, ram_bytes=16_000)
    store(cache, counting(500, 516), layout=RECURRENT)
    recorder = store(cache, counting(0, 20), layout=RECURRENT, close=False)
    before = holdings(cache).counts.blocks
    assert not holdings(cache).add_mark(*recorder._place(20), StopKind.HEAD, bytes(13_000), canonical=False)
    assert holdings(cache).counts.blocks == before


def test_a_limit_of_zero_stores_nothing_and_serves() -> None:
    cache = make_cache(ram_bytes=0)
    recorder = store(cache, counting(0, 9), logits=True)
    assert not recorder.active and recorder.position == 0
    assert plan_of(cache, counting(0, 9)).tier is Tier.NONE
    assert cache.statistics().used_bytes == 0


def test_an_evicted_prefix_is_told_from_one_never_seen() -> None:
    cache = make_cache(ram_bytes=6000)
    store(cache, counting(0, 9))
    for number in range(1, 40):
        store(cache, counting(number * 100, number * 100 + 20))
    assert plan_of(cache, counting(0, 9)).reason is Reason.EVICTED
    assert plan_of(cache, run(7, 7, 7)).reason is Reason.NO_PREFIX


def test_an_evicted_checkpoint_is_told_from_one_never_taken() -> None:
    cache = make_cache(RECURRENT)
    store(cache, counting(0, 30), layout=RECURRENT, checkpoints=[10], kind=StopKind.GRID)
    held = holdings(cache)
    entry = held.queue.take()
    assert entry is not None
    held._evict(entry)
    plan = plan_of(cache, counting(0, 20))
    assert (plan.restore_at, plan.reason) == (0, Reason.EVICTED)
    assert plan_of(cache, counting(0, 9)).reason is Reason.NO_CHECKPOINT


def test_tokens_stored_for_other_weights_are_named_for_the_same_tenant_only() -> None:
    cache = make_cache()
    mine, newer = namespace_key({"weights": "a"}, "t"), namespace_key({"weights": "b"}, "t")
    store(cache, counting(0, 9), namespace=mine)
    assert plan_of(cache, counting(0, 9), namespace=newer).reason is Reason.OTHER_NAMESPACE
    stranger = namespace_key({"weights": "b"}, "another tenant")
    assert plan_of(cache, counting(0, 9), namespace=stranger).reason is Reason.NO_PREFIX


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"block_tokens": 0}, "block size"),
        ({"ram_bytes": -1}, "negative"),
        ({"canonical_grid": 6}, "multiple of the block size"),
        ({"checkpoint_interval": -1}, "negative"),
    ],
)
def test_settings_that_cannot_work_are_refused(settings: dict[str, int], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make_cache(**settings)


def test_statistics_count_what_happened() -> None:
    cache = make_cache()
    store(cache, counting(0, 9), logits=True)
    cache.load(plan_of(cache, counting(0, 9)))
    plan_of(cache, run(5))
    made = cache.statistics()
    assert made.plans == {Tier.RAM: 1, Tier.NONE: 1}
    assert made.restored_tokens == 9
    assert (made.counts.blocks, made.counts.logits, made.namespaces) == (3, 1, 1)
    assert 0 < made.used_bytes <= made.limit_bytes == PLENTY
    cache.clear()
    assert (cache.statistics().used_bytes, cache.statistics().namespaces) == (0, 0)


@pytest.mark.parametrize(("shared", "uses"), [(1, 0), (2, 1), (3, 1), (4, 1)])
def test_loading_counts_as_a_use_of_blocks_of_which_half_or_more_was_used(shared: int, uses: int) -> None:
    cache = make_cache()
    store(cache, counting(0, 8))
    plan = plan_of(cache, glue(counting(0, 4 + shared), run(70, 71, 72)))
    assert all(node.hits == 0 for node in entries(holdings(cache)))
    cache.load(plan)
    nodes = [entry for entry in entries(holdings(cache)) if isinstance(entry, Node)]
    _, first, second = sorted(nodes, key=lambda node: node.level)
    assert (first.hits, second.hits) == (1, uses)


def test_an_empty_namespace_leaves_nothing_behind() -> None:
    cache = make_cache()
    cache.recorder(MY, run()).close()
    assert cache.statistics().namespaces == 0
    assert cache.statistics().used_bytes == 0
