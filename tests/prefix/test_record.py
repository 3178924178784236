"""The recorder: chunks of any size, first rows win, refusal, pins."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headstart.prefix.block import Checkpoint, RowBytes, StateLayout
from headstart.prefix.cache import PrefixCache, Restored
from headstart.prefix.plan import StopKind
from headstart.prefix.report import Reason, Tier
from headstart.prefix.tokens import TokenRun
from headstart.prefix.tree import Node
from tests.prefix.fake import (
    BLOCK,
    DENSE,
    MY,
    PLENTY,
    RECURRENT,
    check_books,
    check_restored,
    checkpoint_of,
    counting,
    entries,
    glue,
    holdings,
    logits_of,
    make_cache,
    plan_of,
    rows_of,
    run,
    store,
)


def signed(tokens: TokenRun, writer: int) -> RowBytes:
    """Rows that tell who wrote them."""
    return RowBytes(tuple(np.full((len(tokens), p.row_bytes), writer, np.uint8) for p in DENSE.planes))


def writers(cache: PrefixCache, prompt: TokenRun) -> list[int]:
    answer = cache.load(plan_of(cache, prompt))
    assert isinstance(answer, Restored)
    return RowBytes.join(answer.rows).planes[0][:, 0].tolist()


@given(chunks=st.lists(st.integers(1, 11), max_size=10), flushes=st.sets(st.integers(0, 9)))
@settings(deadline=None)
def test_chunks_of_any_size_store_the_same(chunks: list[int], flushes: set[int]) -> None:
    tokens = counting(0, 30)
    cache = make_cache()
    recorder = cache.recorder(MY, tokens[:0])
    for number, size in enumerate(chunks):
        at = recorder.position
        stop = min(30, at + size)
        recorder.record(tokens[at:stop], rows_of(DENSE, MY, tokens, at, stop), canonical=True)
        assert recorder.position == stop
        if number in flushes:
            recorder.flush()
            assert plan_of(cache, tokens).divergence == stop
    end = recorder.position
    recorder.close()
    plan = plan_of(cache, tokens)
    assert plan.divergence == end
    assert holdings(cache).counts.blocks == -(-end // BLOCK)
    if plan.restore_at:
        check_restored(DENSE, plan, cache.load(plan))


def test_rows_before_their_block_is_full_are_not_stored_until_flushed() -> None:
    cache = make_cache()
    recorder = store(cache, counting(0, 6), close=False)
    assert plan_of(cache, counting(0, 9)).divergence == 4
    recorder.flush()
    assert plan_of(cache, counting(0, 9)).divergence == 6


def test_a_recorder_starts_where_the_stored_rows_end_inside_a_block_too() -> None:
    cache = make_cache()
    store(cache, counting(0, 10))
    assert cache.recorder(MY, counting(0, 20)).position == 10
    assert cache.recorder(MY, glue(counting(0, 6), run(99))).position == 6
    assert cache.recorder(b"other", counting(0, 20)).position == 0


def test_first_rows_win_over_later_ones_of_the_same_tokens() -> None:
    cache = make_cache()
    tokens = counting(0, 9)
    first, second = cache.recorder(MY, tokens[:0]), cache.recorder(MY, tokens[:0])
    first.record(tokens[:6], signed(tokens[:6], 1), canonical=False)
    first.flush()
    second.record(tokens, signed(tokens, 2), canonical=False)
    second.close()
    first.close()
    assert writers(cache, counting(0, 10)) == [1] * 6 + [2] * 3


def test_siblings_hold_the_same_bits_for_the_tokens_they_share() -> None:
    cache = make_cache()
    one, other = run(1, 2, 3, 4), run(1, 2, 9, 9)
    both = [cache.recorder(MY, one[:0]), cache.recorder(MY, one[:0])]
    both[0].record(one, signed(one, 1), canonical=False)
    both[1].record(other, signed(other, 2), canonical=False)
    for recorder in both:
        recorder.close()
    assert writers(cache, glue(other, run(5))) == [1, 1, 2, 2]


def test_a_partial_tail_is_replaced_by_the_block_that_goes_on_from_it() -> None:
    cache = make_cache()
    store(cache, counting(0, 6), logits=True)
    held = holdings(cache)
    used = held.ram.used_bytes
    store(cache, counting(0, 8))
    assert held.counts.blocks == 2
    assert held.ram.used_bytes == used + 2 * (DENSE.row_bytes + 4)
    assert plan_of(cache, counting(0, 6)).exact
    check_books(held)


def test_a_beginning_of_a_stored_block_is_not_stored_again() -> None:
    cache = make_cache()
    store(cache, counting(0, 8))
    used = holdings(cache).ram.used_bytes
    recorder = cache.recorder(MY, counting(0, 0))
    recorder.record(counting(0, 6), signed(counting(0, 6), 9), canonical=False)
    recorder.close()
    assert holdings(cache).ram.used_bytes == used
    assert holdings(cache).counts.blocks == 2


def test_a_tail_another_recorder_stands_on_can_be_replaced_under_it() -> None:
    cache = make_cache()
    waiting = store(cache, counting(0, 6), close=False)
    waiting.flush()
    store(cache, counting(0, 8))
    other = glue(counting(0, 6), run(70, 71, 72))
    waiting.record(other[6:], rows_of(DENSE, MY, other, 6, 9), canonical=False)
    waiting.close()
    for tokens in (counting(0, 8), other):
        plan = plan_of(cache, glue(tokens, run(1)))
        assert plan.restore_at == len(tokens)
        check_restored(DENSE, plan, cache.load(plan))
    check_books(holdings(cache))
    assert not holdings(cache)._pins


def test_a_path_in_use_is_not_evicted() -> None:
    cache = make_cache(ram_bytes=9000)
    running = store(cache, counting(0, 12), close=False)
    for number in range(100, 160):
        store(cache, counting(number * 100, number * 100 + 9))
    assert holdings(cache).counts.evicted_blocks > 50
    assert plan_of(cache, counting(0, 12)).divergence == 12
    running.close()


def test_when_nothing_may_go_the_recorder_stops_and_what_it_stored_stays() -> None:
    cache = make_cache(ram_bytes=5000)
    tokens = counting(0, 400)
    recorder = store(cache, tokens, close=False)
    assert not recorder.active
    assert 0 < recorder.position < 400
    assert holdings(cache).counts.refused >= 1
    reached = recorder.position
    recorder.record(tokens[reached:], rows_of(DENSE, MY, tokens, reached, 400), canonical=False)
    recorder.put_logits(logits_of(MY, tokens))
    recorder.flush()
    recorder.close()
    assert recorder.position == reached
    plan = plan_of(cache, tokens)
    assert plan.restore_at == reached
    check_restored(DENSE, plan, cache.load(plan))
    check_books(holdings(cache))


@pytest.mark.parametrize("chunk", [1, 2, 3, 5])
@pytest.mark.parametrize("limit", range(3000, 6000, 350))
def test_what_was_taken_before_the_refusal_is_stored(chunk: int, limit: int) -> None:
    cache = make_cache(ram_bytes=limit)
    tokens = counting(0, 100)
    recorder = cache.recorder(MY, run())
    reached = 0
    while recorder.active:
        at = recorder.position
        rows = rows_of(DENSE, MY, tokens, at, at + chunk)
        recorder.record(tokens[at : at + chunk], rows, canonical=False)
        assert recorder.position >= reached, "rows that were taken are gone"
        reached = recorder.position
    recorder.close()
    assert holdings(cache).counts.refused == 1
    assert recorder.position % BLOCK == 0
    plan = plan_of(cache, tokens)
    assert plan.restore_at == recorder.position > 0
    check_restored(DENSE, plan, cache.load(plan))


def test_a_tail_can_grow_in_its_own_place() -> None:
    cache = make_cache(ram_bytes=PLENTY)
    store(cache, counting(0, 3))
    full = holdings(cache).ram.used_bytes + DENSE.row_bytes + 4
    tight = make_cache(ram_bytes=full)
    running = store(tight, counting(0, 3), close=False)
    running.flush()
    running.record(counting(3, 4), rows_of(DENSE, MY, counting(0, 4), 3, 4), canonical=False)
    assert running.active and running.position == 4
    running.close()
    assert holdings(tight).ram.used_bytes == full
    assert plan_of(tight, counting(0, 9)).restore_at == 4


def test_uses_of_a_tail_count_for_the_block_it_grows_into() -> None:
    cache = make_cache()
    store(cache, counting(0, 6))
    for _ in range(3):
        cache.load(plan_of(cache, counting(0, 9)))
    store(cache, counting(0, 8))
    blocks = [e for e in entries(holdings(cache)) if isinstance(e, Node) and e.level == 2]
    assert [node.hits for node in blocks] == [3]


def test_replaced_tails_do_not_pile_up_in_the_eviction_queue() -> None:
    cache = make_cache()
    for number in range(400):
        for length in (1, 2, 3, 4):
            store(cache, counting(number * 10, number * 10 + length))
    held = holdings(cache)
    assert held.counts.blocks == 400
    assert len(held.queue) < 1000


def test_checkpoints_before_and_at_the_position_are_found() -> None:
    cache = make_cache(RECURRENT)
    tokens = counting(0, 11)
    recorder = store(cache, tokens, layout=RECURRENT, close=False)
    for position in (3, 4, 8, 9, 11):
        recorder.put_checkpoint(checkpoint_of(MY, tokens, position), StopKind.MESSAGE)
    recorder.close()
    for length, at in ((5, 4), (9, 8), (10, 9), (11, 9), (12, 11), (4, 3)):
        plan = plan_of(cache, counting(0, length))
        assert plan.restore_at == at
        check_restored(RECURRENT, plan, cache.load(plan))


@pytest.mark.parametrize("position", [0, -1, 7])
def test_a_checkpoint_where_no_rows_are_stored_is_an_error(position: int) -> None:
    cache = make_cache(RECURRENT)
    recorder = store(cache, counting(0, 6), layout=RECURRENT, close=False)
    with pytest.raises(ValueError, match=r"1\.\.6"):
        recorder.put_checkpoint(Checkpoint(position, b"state"), StopKind.MESSAGE)


def test_a_layout_without_planes_resumes_from_checkpoints_alone() -> None:
    layout = StateLayout((), checkpoint_bytes=24, context_tokens=99, vocab_size=5)
    cache = make_cache(layout)
    tokens = counting(0, 11)
    recorder = cache.recorder(MY, tokens[:0])
    for start, stop in ((0, 3), (3, 9), (9, 11)):
        recorder.record(tokens[start:stop], RowBytes(()), canonical=False)
        assert recorder.position == stop
    recorder.put_checkpoint(checkpoint_of(MY, tokens, 9), StopKind.MESSAGE)
    recorder.close()
    plan = plan_of(cache, counting(0, 12))
    assert (plan.divergence, plan.restore_at) == (11, 9)
    answer = cache.load(plan)
    assert isinstance(answer, Restored)
    assert answer.checkpoint == checkpoint_of(MY, tokens, 9).data
    assert (answer.position, sum(part.nbytes for part in answer.rows)) == (9, 0)
    check_books(holdings(cache))


def test_logits_may_come_late_but_not_early() -> None:
    cache = make_cache()
    recorder = store(cache, counting(0, 9), close=False)
    recorder.put_logits(logits_of(MY, counting(0, 6)), at=6)
    with pytest.raises(ValueError, match=r"1\.\.9"):
        recorder.put_logits(logits_of(MY, counting(0, 10)), at=10)
    plan = plan_of(cache, counting(0, 6))
    assert plan.exact
    check_restored(DENSE, plan, cache.load(plan))


def test_rows_and_tokens_must_be_equal_in_number() -> None:
    recorder = make_cache().recorder(MY, run())
    with pytest.raises(ValueError, match="3 tokens came with rows of 2"):
        recorder.record(run(1, 2, 3), signed(run(1, 2), 1), canonical=False)


def test_stored_rows_cannot_be_written_and_do_not_change_with_their_source() -> None:
    cache = make_cache()
    tokens = counting(0, 6)
    rows = rows_of(DENSE, MY, tokens, 0, 6)
    recorder = cache.recorder(MY, run())
    recorder.record(tokens, rows, canonical=False)
    rows.planes[0][:] = 0
    recorder.close()
    plan = plan_of(cache, counting(0, 7))
    answer = cache.load(plan)
    check_restored(DENSE, plan, answer)
    assert isinstance(answer, Restored)
    with pytest.raises(ValueError, match="read-only"):
        answer.rows[0].planes[0][0] = 1


def test_closing_twice_is_closing_once() -> None:
    cache = make_cache()
    one, two = store(cache, counting(0, 6)), store(cache, counting(0, 6), close=False)
    one.close()
    assert len(holdings(cache)._pins) == 1
    two.close()
    assert not holdings(cache)._pins


def test_clearing_the_cache_silences_open_recorders() -> None:
    cache = make_cache()
    recorder = store(cache, counting(0, 6), close=False)
    cache.clear()
    assert not recorder.active
    recorder.record(counting(6, 9), signed(counting(6, 9), 1), canonical=False)
    recorder.close()
    assert plan_of(cache, counting(0, 9)).reason is Reason.NO_PREFIX
    assert cache.statistics().used_bytes == 0


def test_canonical_rows_replace_others_and_never_mix_with_them() -> None:
    cache = make_cache(canonical_grid=BLOCK)
    tokens = counting(0, 9)
    made = cache.recorder(MY, run())
    made.record(tokens, signed(tokens, 1), canonical=False)
    made.close()
    assert plan_of(cache, tokens).tier is Tier.NONE
    again = cache.recorder(MY, tokens[:0])
    for at in range(9):
        again.record(tokens[at : at + 1], signed(tokens[at : at + 1], 2), canonical=True)
        again.flush()
    again.close()
    assert writers(cache, tokens) == [2] * 8
    check_books(holdings(cache))


def test_canonical_rows_are_not_mixed_with_those_of_a_sibling_that_is_not() -> None:
    cache = make_cache(canonical_grid=BLOCK)
    one, other = run(1, 2, 3, 4), run(1, 2, 9, 9)
    for tokens, writer, canonical in ((one, 1, False), (other, 2, True)):
        recorder = cache.recorder(MY, run())
        recorder.record(tokens, signed(tokens, writer), canonical=canonical)
        recorder.close()
    assert writers(cache, glue(other, run(5))) == [2, 2, 2, 2]


def test_a_recorder_reads_a_tail_again_that_is_not_canonical() -> None:
    cache = make_cache(canonical_grid=BLOCK)
    tokens = counting(0, 6)
    recorder = cache.recorder(MY, run())
    recorder.record(tokens[:4], signed(tokens[:4], 1), canonical=True)
    recorder.record(tokens[4:], signed(tokens[4:], 1), canonical=False)
    recorder.close()
    assert plan_of(cache, tokens).divergence == 6
    assert cache.recorder(MY, tokens).position == 4


def test_rows_after_one_that_is_not_canonical_are_not_canonical_either() -> None:
    cache = make_cache(canonical_grid=BLOCK)
    tokens = counting(0, 16)
    recorder = cache.recorder(MY, run())
    recorder.record(tokens[:5], signed(tokens[:5], 1), canonical=True)
    recorder.record(tokens[5:6], signed(tokens[5:6], 1), canonical=False)
    recorder.record(tokens[6:], signed(tokens[6:], 1), canonical=True)
    recorder.close()
    assert plan_of(cache, tokens).restore_at == 4
    assert cache.recorder(MY, tokens).position == 4
