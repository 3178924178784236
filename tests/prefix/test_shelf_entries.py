"""The index of the SSD, entry by entry: what is known of each, what it counts for, who goes before whom."""

from __future__ import annotations

import time

import pytest

from headstart.prefix.blockfile import EntryKind
from headstart.prefix.shelf import OnDisk, Shelf, covering
from headstart.prefix.ssd import disk_bytes
from headstart.prefix.tree import Mark
from tests.prefix.fake import BLOCK, MY, counting, run
from tests.prefix.test_shelf import COUNTED, SIZE, chain, check, length, mark

CHECKPOINT = EntryKind.CHECKPOINT


def keys(entries: object) -> list[bytes]:
    return [entry.payload.key for entry in entries]  # type: ignore[attr-defined]


def shelf_of(*rows: object) -> Shelf:
    shelf = Shelf(BLOCK)
    assert shelf.load(rows) == []  # type: ignore[arg-type]
    return shelf


@pytest.mark.parametrize("canonical", [False, True])
def test_what_is_known_of_an_entry(canonical: bool) -> None:
    """Whether it was announced or was there from the start."""
    (row,) = chain(counting(0, 4))
    rows = [row, mark(MY, run(0)), mark(MY, run(0), kind=CHECKPOINT, stop="message")]
    rows = [one._replace(canonical=canonical) for one in rows]
    loaded, added = shelf_of(*rows), Shelf(BLOCK)
    for one in rows:
        assert added.add(one.head, SIZE) is not None
    for shelf in (loaded, added):
        node = shelf.block(row.key)
        marks = shelf.tree.roots[MY].marks
        assert node is not None and marks is not None
        for entry, one in zip([node, *marks.logits, *marks.checkpoints], rows, strict=True):
            assert isinstance(entry.payload, OnDisk)
            where = (entry.payload.namespace, entry.payload.key, entry.payload.kind)
            assert where == (MY, one.key, one.head.kind)
            assert entry.canonical is canonical
        assert [m.kind for m in (*marks.logits, *marks.checkpoints)] == [None, "message"]
        assert [m.nbytes for m in (*marks.logits, *marks.checkpoints)] == [SIZE, SIZE]
        assert shelf.used_bytes == COUNTED + 2 * disk_bytes(SIZE, 4)


def test_uses_are_counted_on_from_what_the_catalog_knows() -> None:
    (row,) = chain(counting(0, 4))
    shelf = shelf_of(row._replace(hits=7))
    node = shelf.block(row.key)
    assert node is not None and (node.hits, node.clock) == (7, 1.0)
    shelf.touch([node])
    assert node.hits == 8 and node.clock > 1.0


def test_a_block_that_grew_has_the_uses_of_the_shorter_one() -> None:
    (row,) = chain(counting(0, 2))
    shelf = shelf_of(row._replace(hits=7))
    long = shelf.add(chain(counting(0, 3))[0].head, SIZE)
    assert long is not None and long.hits == 7


def test_a_block_without_tokens_is_stray() -> None:
    (row,) = chain(counting(0, 4))
    empty = row._replace(tokens=b"")
    assert Shelf(BLOCK).load([empty]) == [empty]


def test_nothing_is_added_behind_what_has_gone() -> None:
    rows = chain(counting(0, 8))
    shelf = shelf_of(rows[0])
    first = shelf.block(rows[0].key)
    assert first is not None
    assert shelf.drop(first) == [first]
    assert shelf.block(rows[0].key) is None
    assert shelf.keep_parent(rows[1].head) is None
    assert shelf.add(rows[1].head, SIZE) is None
    check(shelf)


def test_a_mark_that_has_gone_takes_nothing_with_it() -> None:
    shelf = shelf_of(*chain(counting(0, 4)), mark(MY, run(0)))
    (gone,) = (m for node in shelf.tree.roots.values() if node.marks for m in node.marks.logits)
    assert shelf.drop(gone) == [gone]
    assert shelf.drop(gone) == []
    check(shelf)


def test_marks_whose_rows_a_block_holds() -> None:
    rows = [mark(MY, run(0, 1)), mark(MY, run(0), kind=CHECKPOINT, stop="head"), mark(MY, run(9))]
    shelf = shelf_of(*chain(counting(0, 4)), *chain(run(9)), *rows)
    root = shelf.tree.roots[MY]
    assert set(keys(covering(root, rows[0].head.tokens))) == {rows[0].key, rows[1].key}
    assert covering(next(iter(root.children)), rows[0].head.tokens) == []  # type: ignore[arg-type]


# Who goes first


def test_a_used_grid_checkpoint_and_other_marks_go_by_their_last_use() -> None:
    grid = mark(MY, run(0, 1), kind=CHECKPOINT, stop="grid", used_s=90.0)._replace(hits=1)
    message = mark(MY, run(0), kind=CHECKPOINT, stop="message", used_s=95.0)
    logits = mark(MY, run(0), used_s=97.0)
    other = chain(counting(50, 54), used_s=2.0)
    shelf = shelf_of(*chain(counting(0, 4), used_s=99.0), *other, grid, message, logits)
    gone = [keys(shelf.evict_to(shelf.used_bytes - 1)) for _ in range(4)]
    assert gone == [[other[0].key], [grid.key], [message.key], [logits.key]]


def test_a_new_entry_was_used_now() -> None:
    shelf = Shelf(BLOCK)
    (first,), (second,) = chain(counting(0, 4)), chain(counting(50, 54))
    shelf.add(first.head, SIZE)
    node = shelf.block(first.key)
    assert node is not None and abs(node.clock - time.time()) < 60
    shelf.load([second._replace(used_s=node.clock - 1)])
    assert keys(shelf.evict_to(COUNTED)) == [second.key]


def test_a_namespace_that_is_empty_now_is_not_looked_at() -> None:
    other = chain(counting(0, 4), used_s=0.5, namespace=b"other")
    shelf = shelf_of(*chain(counting(0, 8)), *other)
    assert keys(shelf.evict_to(2 * COUNTED)) == [other[0].key]
    assert len(list(shelf.evict_to(0))) == 2
    check(shelf)


def test_two_pins_need_two_to_undo_them() -> None:
    shelf = shelf_of(*chain(counting(0, 4)))
    (node,) = shelf.match(MY, counting(0, 4).astype(">u4").tobytes()).blocks  # type: ignore[arg-type]
    shelf.pin(node)
    shelf.pin(node)
    shelf.unpin(node)
    assert list(shelf.evict_to(0)) == []
    shelf.unpin(node)
    assert list(shelf.evict_to(0)) == [node]


def test_a_parent_that_is_kept_is_not_evicted() -> None:
    rows = chain(counting(0, 8))
    shelf = shelf_of(rows[0])
    parent = shelf.keep_parent(rows[1].head)
    assert parent is not None and list(shelf.evict_to(0)) == []
    shelf.unpin(parent)
    assert length(shelf, counting(0, 4)) == 4
    assert list(shelf.evict_to(0)) == [parent]


def test_stale_marks_in_the_queue_do_not_pile_up() -> None:
    shelf = shelf_of(*chain(counting(0, 4)))
    for _ in range(3000):
        entry = shelf.add(mark(MY, run(0)).head, SIZE)
        assert isinstance(entry, Mark)
        shelf.drop(entry)
    assert len(shelf._queue) < 200
