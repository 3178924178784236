"""The index of the SSD: what a store holds is taken in whole or not at all, and goes leaves first."""

from __future__ import annotations

import time
from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headstart.prefix.blockfile import EntryKind, Head
from headstart.prefix.catalog import Listed
from headstart.prefix.keys import token_bytes
from headstart.prefix.shelf import OnDisk, Shelf
from headstart.prefix.ssd import disk_bytes
from headstart.prefix.stops import StopKind
from headstart.prefix.tokens import TokenRun
from headstart.prefix.tree import Mark, Node
from tests.prefix.fake import BLOCK, MY, counting, run

SIZE = 100
COUNTED = disk_bytes(SIZE, BLOCK * 4)


def chain(
    tokens: TokenRun, *, used_s: float = 1.0, namespace: bytes = MY, block_tokens: int = BLOCK
) -> list[Listed]:
    """The blocks of `tokens`, parents first."""
    rows: list[Listed] = []
    parent = namespace
    for at in range(0, len(tokens), block_tokens):
        data = bytes(token_bytes(tokens[at : at + block_tokens]))
        head = Head(EntryKind.BLOCK, namespace, parent, data, len(rows) + 1)
        rows.append(Listed.of(head.key, head, SIZE, 0, used_s))
        parent = head.key
    return rows


def mark(
    parent: bytes,
    tokens: TokenRun,
    *,
    kind: EntryKind = EntryKind.LOGITS,
    stop: str = "",
    used_s: float = 1.0,
) -> Listed:
    head = Head(kind, MY, parent, bytes(token_bytes(tokens)), 1, False, stop)
    return Listed.of(head.key, head, SIZE, 0, used_s)


def length(shelf: Shelf, tokens: TokenRun, namespace: bytes = MY) -> int:
    return shelf.match(namespace, token_bytes(tokens)).length


def check(shelf: Shelf) -> None:
    """The counts are those of what the tree holds."""
    nodes: list[Node] = []
    waiting = list(shelf.tree.roots.values())
    while waiting:
        node = waiting.pop()
        nodes.append(node)
        children = node.children
        waiting += [children] if isinstance(children, Node) else list(children or ())
    blocks = [node for node in nodes if node.level]
    marks = [m for n in nodes if n.marks for m in [*n.marks.checkpoints, *n.marks.logits]]
    assert (shelf.blocks, shelf.marks, len(shelf)) == (len(blocks), len(marks), len(blocks) + len(marks))
    used = 0
    for entry in [*blocks, *marks]:
        assert isinstance(entry.payload, OnDisk) and entry.payload.key in shelf
        used += entry.payload.nbytes
    assert shelf.used_bytes == used


def test_an_entry_under_other_tokens_than_its_key_says_is_found_out() -> None:
    rows = [*chain(counting(0, 12)), mark(chain(counting(0, 4))[0].key, run(4, 5))]
    sound = Shelf(BLOCK)
    sound.load(rows)
    for damaged in range(4):
        shelf = Shelf(BLOCK)
        other = bytes(token_bytes(run(99, *range(99, 99 + len(rows[damaged].tokens) // 4 - 1))))
        shelf.load([row._replace(tokens=other) if n == damaged else row for n, row in enumerate(rows)])
        last, wrong = shelf.block(rows[2].key), shelf.block(rows[damaged].key)
        assert last is not None and shelf.first_wrong(last) is wrong
    for row in rows:
        entry = sound.block(row.key)
        assert entry is None or sound.first_wrong(entry) is None
    (first,) = (node for node in (sound.block(rows[0].key),) if node is not None)
    assert first.marks is not None
    (logits,) = first.marks.logits
    assert sound.first_wrong(logits) is None
    logits.tail = bytes(token_bytes(run(4, 6)))
    assert sound.first_wrong(logits) is logits


def test_the_order_of_the_rows_is_of_no_matter() -> None:
    rows = [*chain(counting(0, 10)), *chain(run(0, 1, 2, 3, 9, 9))[1:]]
    rows.append(mark(rows[0].key, run(4, 5)))
    for order in permutations(rows):
        shelf = Shelf(BLOCK)
        assert shelf.load(order) == []
        assert (length(shelf, counting(0, 20)), length(shelf, run(0, 1, 2, 3, 9, 9, 9))) == (10, 6)
        assert (shelf.blocks, shelf.marks) == (4, 1)
        check(shelf)


def test_what_hangs_on_nothing_is_stray() -> None:
    rows = chain(counting(0, 16))
    lost = rows.pop(1)
    marks = [
        mark(rows[0].key, run(4, 5)),
        mark(rows[0].key, run(9)),
        mark(lost.key, run(8)),
        mark(MY, run(0, 1)),
    ]
    shelf = Shelf(BLOCK)
    stray = shelf.load([*rows, *marks])
    assert {one.key for one in stray} == {rows[1].key, rows[2].key, *(m.key for m in marks[:3])}
    assert length(shelf, counting(0, 16)) == 4
    assert shelf.marks == 1
    check(shelf)


def test_a_shorter_block_gives_way_to_a_longer_one_whatever_comes_first() -> None:
    (short,), (long,) = chain(counting(0, 2)), chain(counting(0, 3))
    tail = mark(MY, counting(0, 2))
    for order in permutations([short, long, tail]):
        shelf = Shelf(BLOCK)
        assert shelf.load(order) == [short]
        assert length(shelf, counting(0, 9)) == 3
        assert shelf.marks == 1
        check(shelf)


@pytest.mark.parametrize("block_tokens", [0, 2, 8])
def test_a_namespace_of_another_block_size_counts_and_is_not_matched(block_tokens: int) -> None:
    rows = chain(counting(0, 16))
    shelf = Shelf(block_tokens)
    assert shelf.load([*rows, mark(rows[0].key, run(4, 5))]) == []
    assert (shelf.blocks, shelf.marks) == (4, 1)
    if block_tokens:
        assert length(shelf, counting(0, 16)) == 0
    assert len(list(shelf.evict_to(0))) == 5
    assert shelf.used_bytes == 0


def test_one_namespace_of_another_block_size_leaves_the_others_be() -> None:
    mine, other = chain(counting(0, 16)), chain(counting(0, 18), namespace=b"other", block_tokens=3)
    shelf = Shelf(BLOCK)
    assert shelf.load([*other, *mine]) == []
    assert length(shelf, counting(0, 16)) == 16
    assert shelf.match(b"other", token_bytes(counting(0, 18))).length == 0


def test_a_reason_for_a_checkpoint_that_is_not_known() -> None:
    rows = chain(counting(0, 4))
    odd = mark(MY, run(0, 1), kind=EntryKind.CHECKPOINT, stop="of the future")
    shelf = Shelf(BLOCK)
    assert shelf.load([*rows, odd]) == []
    marks = shelf.tree.roots[MY].marks
    assert marks is not None and marks.checkpoints[0].kind is StopKind.GRID


def test_namespaces_are_apart() -> None:
    shelf = Shelf(BLOCK)
    shelf.load([*chain(counting(0, 8)), *chain(counting(0, 4), namespace=b"other")])
    assert length(shelf, counting(0, 8)) == 8
    assert length(shelf, counting(0, 8), b"other") == 4
    assert length(shelf, counting(0, 8), b"third") == 0


def test_what_was_used_longest_ago_goes_first_leaves_before_parents() -> None:
    shelf = Shelf(BLOCK)
    shelf.load([*chain(counting(0, 12), used_s=5.0), *chain(counting(50, 58), used_s=3.0)])
    other = chain(counting(90, 94), used_s=4.0)
    shelf.load(other)
    gone = [entry.payload.key for entry in shelf.evict_to(0)]  # type: ignore[union-attr]
    first, second = chain(counting(0, 12)), chain(counting(50, 58))
    assert gone == [
        second[1].key,
        second[0].key,
        other[0].key,
        first[2].key,
        first[1].key,
        first[0].key,
    ]
    assert (shelf.used_bytes, len(shelf), shelf.evicted) == (0, 0, 6)
    check(shelf)


def test_unused_scaffolding_goes_before_all() -> None:
    shelf = Shelf(BLOCK)
    grid = mark(MY, run(0, 1), kind=EntryKind.CHECKPOINT, stop="grid", used_s=99.0)
    message = mark(MY, run(0), kind=EntryKind.CHECKPOINT, stop="message", used_s=0.5)
    shelf.load([*chain(counting(0, 4), used_s=1.0), grid, message])
    (gone,) = shelf.evict_to(shelf.used_bytes - 1)
    assert isinstance(gone, Mark) and gone.kind is StopKind.GRID
    (gone,) = shelf.evict_to(shelf.used_bytes - 1)
    assert isinstance(gone, Mark) and gone.kind is StopKind.MESSAGE


def test_use_keeps() -> None:
    shelf = Shelf(BLOCK)
    shelf.load([*chain(counting(0, 4), used_s=1.0), *chain(counting(50, 54), used_s=2.0)])
    shelf.touch(shelf.match(MY, token_bytes(counting(0, 4))).blocks)
    list(shelf.evict_to(COUNTED))
    assert (length(shelf, counting(0, 4)), length(shelf, counting(50, 54))) == (4, 0)


def test_pinned_blocks_and_all_before_them_stay() -> None:
    shelf = Shelf(BLOCK)
    shelf.load(chain(counting(0, 12)))
    node = shelf.match(MY, token_bytes(counting(0, 8))).blocks[-1]
    shelf.pin(node)
    assert len(list(shelf.evict_to(0))) == 1
    assert length(shelf, counting(0, 12)) == 8
    shelf.unpin(node)
    assert len(list(shelf.evict_to(0))) == 2


def test_a_pin_goes_over_to_the_block_that_takes_the_place() -> None:
    shelf = Shelf(BLOCK)
    shelf.load(chain(counting(0, 6)))
    short = shelf.match(MY, token_bytes(counting(0, 6))).blocks[-1]
    shelf.pin(short)
    long = chain(counting(0, 7))[-1]
    shelf.add(long.head, SIZE)
    (replaced,) = shelf.take_superseded()
    assert replaced.key == chain(counting(0, 6))[-1].key
    assert shelf.take_superseded() == []
    assert list(shelf.evict_to(0)) == []
    assert shelf.drop(short) == [], "what has gone already takes nothing with it"
    shelf.unpin(short)
    assert len(list(shelf.evict_to(0))) == 2
    check(shelf)


def test_dropping_takes_what_needs_it() -> None:
    shelf = Shelf(BLOCK)
    rows = chain(counting(0, 12))
    marks = [mark(MY, run(0)), mark(rows[0].key, run(4)), mark(rows[1].key, run(8))]
    shelf.load([*rows, *chain(run(0, 1, 2, 3, 9)), *marks])
    second = shelf.match(MY, token_bytes(counting(0, 12))).blocks[1]
    gone = shelf.drop(second)
    assert [entry for entry in gone if isinstance(entry, Node)][-1] is second
    assert {entry.payload.key for entry in gone} == {  # type: ignore[union-attr]
        rows[1].key,
        rows[2].key,
        marks[1].key,
        marks[2].key,
    }
    assert length(shelf, counting(0, 12)) == 4
    check(shelf)
    assert len(list(shelf.evict_to(0))) == 3, "what stays can still be evicted"


def test_adding_needs_the_parent_and_the_rows() -> None:
    shelf = Shelf(BLOCK)
    rows = chain(counting(0, 8))
    assert shelf.add(rows[1].head, SIZE) is None
    assert shelf.add(mark(MY, run(0)).head, SIZE) is None
    assert shelf.add(rows[0].head, SIZE) is not None
    assert shelf.add(rows[0].head, SIZE) is None
    assert shelf.add(mark(MY, run(0)).head, SIZE) is not None
    assert shelf.add(mark(MY, run(0)).head, SIZE) is None
    assert shelf.keep_parent(chain(counting(50, 62))[2].head) is None
    check(shelf)


@given(st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=11), max_size=12), st.randoms())
def test_whatever_comes_and_goes_the_books_are_right(prompts: list[list[int]], random) -> None:  # type: ignore[no-untyped-def]  # noqa: ANN001
    shelf = Shelf(BLOCK)
    for prompt in prompts:
        for row in chain(run(*prompt)):
            shelf.add(row.head, SIZE)
        if random.random() < 0.3:
            list(shelf.evict_to(shelf.used_bytes * 2 // 3))
        check(shelf)
    list(shelf.evict_to(0))
    assert (shelf.used_bytes, len(shelf)) == (0, 0)


def test_many_entries_are_taken_in_quickly() -> None:
    """The bound is loose; bench/open_store.py measures."""
    rows = [row for number in range(10_000) for row in chain(run(number, 1, 2, 3, 4))]
    started_s = time.perf_counter()
    shelf = Shelf(BLOCK)
    assert shelf.load(rows) == []
    assert time.perf_counter() - started_s < 5
    assert shelf.blocks == 20_000


@pytest.mark.parametrize("count", [1, 3])
def test_stale_places_in_the_queue_do_not_pile_up(count: int) -> None:
    shelf = Shelf(BLOCK)
    for number in range(3000):
        for row in chain(counting(number, number + count)):
            entry = shelf.add(row.head, SIZE)
            assert entry is not None
            shelf.drop(entry)
    assert len(shelf._queue) < 200
