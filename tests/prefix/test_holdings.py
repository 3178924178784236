"""What survives when memory is short: simulated traces of requests against a full cache."""

from __future__ import annotations

import numpy as np
import pytest

from headstart.prefix.block import StateLayout
from headstart.prefix.cache import PrefixCache
from headstart.prefix.keys import token_bytes
from headstart.prefix.plan import StopKind
from headstart.prefix.tokens import TokenRun
from headstart.prefix.tree import Mark
from tests.prefix.fake import (
    BLOCK,
    DENSE,
    MY,
    RECURRENT,
    check_books,
    counting,
    entries,
    glue,
    holdings,
    make_cache,
    plan_of,
    store,
)

BLOCK_COST = 1100
"""Bytes counted for one block of four tokens, about."""


def turn(cache: PrefixCache, tokens: TokenRun, layout: StateLayout = DENSE) -> int:
    """One request: resume, read the rest, store. Answers how many tokens had to be read."""
    plan = plan_of(cache, tokens)
    if plan.restore_at:
        cache.load(plan)
    store(cache, tokens, layout=layout)
    return len(tokens) - plan.restore_at


def text(seed: int, length: int) -> TokenRun:
    return np.random.default_rng(seed).integers(0, 50_000, length).astype(np.int32)


def blocks(number: int) -> int:
    return number * BLOCK_COST


def test_a_burst_of_one_off_requests_does_not_push_out_a_long_conversation() -> None:
    cache = make_cache(ram_bytes=blocks(100))
    conversation = text(1, 60 * BLOCK)
    for length in (20, 40, 60):
        turn(cache, conversation[: length * BLOCK])
    for seed in range(100, 1100):
        turn(cache, text(seed, 3 * BLOCK))
    assert holdings(cache).counts.evicted_blocks > 2000
    assert turn(cache, conversation) == 1
    check_books(holdings(cache))


def test_a_burst_under_a_shared_title_prompt_does_not_either() -> None:
    cache = make_cache(ram_bytes=blocks(100))
    conversation = text(1, 60 * BLOCK)
    for length in (20, 40, 60):
        turn(cache, conversation[: length * BLOCK])
    title = text(2, 2 * BLOCK + 1)
    read = [turn(cache, glue(title, text(seed, 2 * BLOCK))) for seed in range(100, 1100)]
    assert turn(cache, conversation) == 1
    assert max(read[1:]) <= 3 * BLOCK


def test_a_conversation_nobody_comes_back_to_does_go_in_the_end() -> None:
    cache = make_cache(ram_bytes=blocks(100))
    old = text(1, 60 * BLOCK)
    for length in (20, 40, 60):
        turn(cache, old[: length * BLOCK])
    read = []
    for seed in range(100, 160):
        conversation = text(seed, 30 * BLOCK)
        for length in (10, 20, 30):
            read.append(turn(cache, conversation[: length * BLOCK]))
    assert plan_of(cache, old).restore_at == 0
    assert sum(read[-30:]) <= 10 * 31 * BLOCK


def test_a_conversation_that_was_pushed_out_and_came_back_is_kept() -> None:
    cache = make_cache(ram_bytes=blocks(100))
    conversation = text(1, 40 * BLOCK)
    turn(cache, conversation)
    for seed in range(100, 300):
        turn(cache, text(seed, 3 * BLOCK))
    assert plan_of(cache, conversation).divergence < len(conversation) / 2
    assert turn(cache, conversation) > len(conversation) / 2
    for seed in range(300, 500):
        turn(cache, text(seed, 3 * BLOCK))
    assert turn(cache, conversation) == 1


def test_heads_that_several_conversations_share_live_longest() -> None:
    cache = make_cache(ram_bytes=blocks(60))
    head, lonely = text(1, 10 * BLOCK), text(2, 10 * BLOCK)
    turn(cache, lonely)
    turn(cache, lonely)
    for seed in range(10, 16):
        turn(cache, glue(head, text(seed, 5 * BLOCK)))
    for seed in range(1000, 1060):
        for length in (4, 8, 12):
            turn(cache, text(seed, length * BLOCK))
        if plan_of(cache, lonely).divergence == 0:
            break
    assert plan_of(cache, lonely).divergence == 0
    assert plan_of(cache, head).divergence == len(head)


def test_eviction_takes_the_end_of_a_conversation_before_its_beginning() -> None:
    cache = make_cache(ram_bytes=blocks(40))
    conversation = text(1, 30 * BLOCK)
    turn(cache, conversation)
    seen = [len(conversation)]
    for seed in range(100, 200):
        turn(cache, text(seed, 2 * BLOCK))
        left = plan_of(cache, conversation).divergence
        assert left <= seen[-1] and left % BLOCK == 0
        seen.append(left)
    assert len(set(seen)) > 5


def fill_with_rows(cache: PrefixCache, first: int, count: int) -> None:
    for seed in range(first, first + count):
        store(cache, text(seed, 4 * BLOCK), layout=RECURRENT)


def kinds_left(cache: PrefixCache, tokens: TokenRun) -> set[int]:
    recorder_free = [plan_of(cache, tokens[: p + 1]).restore_at for p in range(1, len(tokens))]
    return set(recorder_free) - {0}


def test_grid_checkpoints_go_first() -> None:
    cache = make_cache(RECURRENT, ram_bytes=blocks(60))
    tokens = text(1, 10 * BLOCK)
    recorder = store(cache, tokens, layout=RECURRENT, checkpoints=[9, 25], kind=StopKind.MESSAGE, close=False)
    from tests.prefix.fake import checkpoint_of

    for position in (16, 32):
        recorder.put_checkpoint(checkpoint_of(MY, tokens, position), StopKind.GRID)
    recorder.close()
    assert kinds_left(cache, tokens) == {9, 16, 25, 32}
    seed = 100
    while holdings(cache).counts.evicted_blocks == 0:
        fill_with_rows(cache, seed, 1)
        seed += 1
    assert holdings(cache).counts.evicted_checkpoints == 2
    assert kinds_left(cache, tokens) == {9, 25}


def test_a_grid_checkpoint_that_was_used_is_kept_like_others() -> None:
    cache = make_cache(RECURRENT, ram_bytes=blocks(60))
    tokens = text(1, 10 * BLOCK)
    store(cache, tokens, layout=RECURRENT, checkpoints=[16, 32], kind=StopKind.GRID)
    cache.load(plan_of(cache, tokens[:18]))
    seed = 100
    while holdings(cache).counts.evicted_blocks == 0:
        fill_with_rows(cache, seed, 1)
        seed += 1
    assert kinds_left(cache, tokens) == {16}


def test_the_checkpoint_of_a_shared_head_lives_longer_than_those_of_its_conversations() -> None:
    cache = make_cache(RECURRENT, ram_bytes=blocks(120))
    head = text(1, 5 * BLOCK)
    for seed in range(10, 20):
        tokens = glue(head, text(seed, 3 * BLOCK))
        plan = plan_of(cache, tokens)
        if plan.restore_at:
            cache.load(plan)
        store(cache, tokens, layout=RECURRENT, checkpoints=[len(head), len(tokens)], kind=StopKind.MESSAGE)
    held = holdings(cache)
    left = 10
    for seed in range(1000, 1400):
        fill_with_rows(cache, seed, 1)
        ends = [glue(head, text(s, 3 * BLOCK), counting(0, 1)) for s in range(10, 20)]
        left = sum(plan_of(cache, end).restore_at == len(end) - 1 for end in ends)
        if not left:
            break
    assert left == 0
    assert plan_of(cache, glue(head, counting(0, 2))).restore_at == len(head)
    check_books(held)


def test_old_checkpoints_of_a_conversation_are_thinned_out_evenly() -> None:
    cache = make_cache(RECURRENT)
    tokens = text(1, 64 * BLOCK)
    store(cache, tokens, layout=RECURRENT, checkpoints=range(8, 257, 8), kind=StopKind.MESSAGE)
    held = holdings(cache)
    while held.counts.evicted_checkpoints < 24:
        entry = held.queue.take()
        assert entry is not None
        held._evict(entry)
    left = sorted(kinds_left(cache, tokens))
    gaps = np.diff([0, *left])
    assert len(left) >= 7 and max(gaps) <= 48


def test_a_block_stays_as_long_as_the_checkpoint_that_needs_it_is_worth_more() -> None:
    cache = make_cache(RECURRENT)
    used, unused = text(1, 40 * BLOCK), text(2, 40 * BLOCK)
    for tokens in (used, unused):
        store(cache, tokens, layout=RECURRENT, checkpoints=[len(tokens)], kind=StopKind.MESSAGE)
    held = holdings(cache)
    held.touch(
        [
            mark
            for mark in entries(held)
            if isinstance(mark, Mark)
            and mark.node is not None
            and mark.node.level == 39
            and mark.tail == token_bytes(used[-BLOCK:])
        ]
    )
    while plan_of(cache, unused).divergence:
        entry = held.queue.take()
        assert entry is not None
        held._evict(entry)
    assert plan_of(cache, glue(used, text(3, 2))).restore_at == len(used)


def test_a_checkpoint_kept_for_a_better_reason_takes_that_reason() -> None:
    cache = make_cache(RECURRENT)
    tokens = text(1, 8)
    store(cache, tokens, layout=RECURRENT, checkpoints=[8], kind=StopKind.GRID)
    store(cache, tokens, layout=RECURRENT, checkpoints=[8], kind=StopKind.HEAD)
    held = holdings(cache)
    assert held.counts.checkpoints == 1
    root = held.tree.roots[MY]
    node = root.children
    assert not isinstance(node, list) and node is not None and node.marks is not None
    assert node.marks.checkpoints[0].kind is StopKind.HEAD


@pytest.mark.parametrize("limit", [3_000, 20_000, 60_000])
def test_the_books_are_right_after_every_turn_of_a_busy_day(limit: int) -> None:
    cache = make_cache(RECURRENT, ram_bytes=limit)
    random = np.random.default_rng(limit)
    heads = [text(seed, int(random.integers(1, 30))) for seed in range(3)]
    for seed in range(100):
        tokens = glue(heads[seed % 3], text(int(random.integers(0, 25)), int(random.integers(1, 40))))
        plan = plan_of(cache, tokens)
        if plan.restore_at:
            cache.load(plan)
        at = random.integers(1, len(tokens) + 1, 2).tolist()
        store(cache, tokens, layout=RECURRENT, checkpoints=at, logits=bool(seed % 2))
        check_books(holdings(cache))
