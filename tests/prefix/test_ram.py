"""The RAM store: what it counts, what it refuses, and how failed reads look."""

from __future__ import annotations

import gc
import tracemalloc

import numpy as np
import pytest

from headstart.prefix.block import Plane, RowBytes, StateLayout
from headstart.prefix.faults import Fault, FaultInjector
from headstart.prefix.ram import RamStore, StoreReadError
from headstart.prefix.report import Reason
from headstart.prefix.stops import StopKind
from headstart.prefix.tree import LOST, Mark, Node
from tests.prefix.fake import DENSE, MY, holdings, make_cache, rows_of, run


def node_with_rows() -> Node:
    node = Node(Node(None, b"", MY), b"\0\0\0\1\0\0\0\2", b"key")
    node.payload = rows_of(DENSE, MY, run(1, 2), 0, 2)
    return node


def test_taking_more_than_the_limit_raises() -> None:
    ram = RamStore(DENSE, 100)
    ram.take(60)
    with pytest.raises(MemoryError, match="41 bytes do not fit: 60 of 100"):
        ram.take(41)
    assert ram.used_bytes == 60
    ram.give(60)
    assert ram.fits(100) and not ram.fits(101)


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        (Fault.FAIL, Reason.IO_ERROR),
        (Fault.TRUNCATE, Reason.CORRUPT),
        (Fault.LOSE, Reason.CORRUPT),
    ],
)
def test_a_spoiled_read_has_a_named_reason(fault: Fault, reason: Reason) -> None:
    faults = FaultInjector()
    ram = RamStore(DENSE, 10_000, faults)
    node, mark = (
        node_with_rows(),
        Mark(Node(None, b"", MY), b"\0\0\0\1", None, nbytes=8, canonical=False),
    )
    mark.payload = b"12345678"
    for read in (lambda: ram.rows(node), lambda: ram.checkpoint(mark), lambda: ram.logits(mark)):
        faults.spoil(fault)
        with pytest.raises(StoreReadError) as failure:
            read()
        assert failure.value.reason is reason
        read()


def test_rows_of_another_layout_are_refused() -> None:
    node = node_with_rows()
    narrow = StateLayout((Plane("k", 8), Plane("v", 11)), 0, 10, 5)
    with pytest.raises(StoreReadError, match="planes of shape"):
        RamStore(narrow, 10_000).rows(node)
    fewer = StateLayout((Plane("k", 8),), 0, 10, 5)
    with pytest.raises(StoreReadError, match="planes of shape"):
        RamStore(fewer, 10_000).rows(node)


def test_logits_handed_out_can_be_written_without_changing_what_is_stored() -> None:
    mark = Mark(Node(None, b"", MY), b"\0\0\0\1", None, nbytes=8, canonical=False)
    mark.payload = np.array([1, 2], np.float32).tobytes()
    ram = RamStore(DENSE, 10_000)
    ram.logits(mark)[0] = 7
    assert ram.logits(mark)[0] == 1


def test_a_lost_block_counts_its_index_only() -> None:
    ram, node = RamStore(DENSE, 10_000), node_with_rows()
    whole = ram.counted(node)
    node.payload = LOST
    assert whole - ram.counted(node) > 2 * DENSE.row_bytes


@pytest.mark.parametrize("planes", [2, 48])
def test_counted_bytes_cover_the_memory_really_taken(planes: int) -> None:
    layout = StateLayout(tuple(Plane(f"p{i}", 64) for i in range(planes)), 5000, 10_000, 5)
    cache = make_cache(layout, block_tokens=16)
    tokens = np.arange(16 * 40, dtype=np.int32)
    chunk = RowBytes(tuple(np.ones((16, 64), np.uint8) for _ in range(planes)))
    gc.collect()
    counted = holdings(cache).ram.used_bytes
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    recorder = cache.recorder(MY, tokens[:0])
    for at in range(0, len(tokens), 16):
        recorder.record(tokens[at : at + 16], chunk, canonical=False)
        recorder.put_logits(np.ones(50, np.float32))
    for at in range(0, len(tokens), 64):
        node, tail = recorder._place(at + 3)
        state = bytes(bytearray(5000))
        assert holdings(cache).add_mark(node, tail, StopKind.GRID, state, canonical=False)
    recorder.close()
    del recorder
    gc.collect()
    taken = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    counted = holdings(cache).ram.used_bytes - counted
    assert taken <= counted <= 1.3 * taken
