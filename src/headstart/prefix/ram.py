"""The RAM tier: payloads of index entries, counted against a hard budget.

The payload of an entry sits on the entry itself, so the store adds nothing to the index. Counted
are the rows, checkpoints and logits, and for every entry what the index needs for it.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from headstart.prefix.block import RowBytes, StateLayout
from headstart.prefix.faults import FaultInjector
from headstart.prefix.keys import TOKEN_BYTES
from headstart.prefix.report import Reason
from headstart.prefix.tree import LOST, Entry, Mark, Node

NODE_BYTES = 288
"""Index memory of a block beyond its token ids; bench/prefix_index.py measures it."""

ROWS_BYTES, PLANE_BYTES = 256, 176
"""Memory of the objects that hold a block's rows, beside the rows: in all, and a plane."""

MARK_BYTES = 400
"""Index memory of a checkpoint or logits beyond its tail and payload: the entry, its float and
integer fields, its share of the mark lists of its node."""


class StoreReadError(Exception):
    """Stored state could not be read. `reason`: IO_ERROR (may work again) or CORRUPT (never will)."""

    def __init__(self, reason: Reason, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason


class RamStore:
    """Payloads within `limit_bytes`. Who fills it makes room first; it refuses to go over."""

    def __init__(self, layout: StateLayout, limit_bytes: int, faults: FaultInjector | None = None) -> None:
        self.layout = layout
        self.limit_bytes = limit_bytes
        self.used_bytes = 0
        self._faults = faults

    def node_bytes(self, count: int) -> int:
        """Bytes counted for a block of `count` tokens."""
        objects = ROWS_BYTES + PLANE_BYTES * len(self.layout.planes)
        return NODE_BYTES + objects + count * (self.layout.row_bytes + TOKEN_BYTES)

    def mark_bytes(self, tail: bytes, payload_bytes: int) -> int:
        """Bytes counted for a checkpoint or logits of `payload_bytes`."""
        return MARK_BYTES + len(tail) + payload_bytes

    def root_bytes(self, namespace: bytes) -> int:
        """Bytes counted for the root of a namespace."""
        return NODE_BYTES + len(namespace)

    def counted(self, entry: Entry) -> int:
        """Bytes counted for `entry` as it is now."""
        if isinstance(entry, Mark):
            return self.mark_bytes(entry.tail, entry.nbytes)
        assert isinstance(entry, Node)
        if entry.level == 0:
            return self.root_bytes(entry.key)
        if entry.payload is LOST:
            return NODE_BYTES + entry.count * TOKEN_BYTES
        return self.node_bytes(entry.count)

    def fits(self, nbytes: int) -> bool:
        return self.used_bytes + nbytes <= self.limit_bytes

    def take(self, nbytes: int) -> None:
        """Counts `nbytes` more. Raises MemoryError where that would go over the limit."""
        if not self.fits(nbytes):
            raise MemoryError(f"{nbytes} bytes do not fit: {self.used_bytes} of {self.limit_bytes} are used")
        self.used_bytes += nbytes

    def give(self, nbytes: int) -> None:
        """Counts `nbytes` less."""
        self.used_bytes -= nbytes

    def rows(self, node: Node) -> RowBytes:
        """The rows of a block. Raises StoreReadError where they cannot be had or do not fit the layout."""
        payload = self._read(node)
        if not isinstance(payload, RowBytes):
            raise StoreReadError(Reason.CORRUPT, "the rows of a stored block are missing")
        want = [(node.count, plane.row_bytes) for plane in self.layout.planes]
        have = [plane.shape for plane in payload.planes]
        if have != want:
            raise StoreReadError(
                Reason.CORRUPT, f"a stored block has planes of shape {have}, expected {want}"
            )
        return payload

    def checkpoint(self, mark: Mark) -> bytes:
        """The bytes of a checkpoint. Raises StoreReadError."""
        payload = self._read(mark)
        if not isinstance(payload, bytes) or len(payload) != mark.nbytes:
            raise StoreReadError(Reason.CORRUPT, f"a stored checkpoint is not {mark.nbytes} bytes long")
        return payload

    def logits(self, mark: Mark) -> npt.NDArray[np.float32]:
        """A copy of stored logits. Raises StoreReadError."""
        payload = self._read(mark)
        if not isinstance(payload, bytes) or len(payload) != mark.nbytes:
            raise StoreReadError(Reason.CORRUPT, f"stored logits are not {mark.nbytes} bytes long")
        return np.frombuffer(payload, np.float32).copy()

    def _read(self, entry: Entry) -> object:
        if self._faults is None:
            return entry.payload
        try:
            return self._faults.pass_on(entry.payload)
        except OSError as failure:
            raise StoreReadError(Reason.IO_ERROR, str(failure)) from failure


def frozen(rows: RowBytes) -> RowBytes:
    """`rows`, whose arrays are the store's own, made read-only."""
    for plane in rows.planes:
        plane.setflags(write=False)
    return rows
