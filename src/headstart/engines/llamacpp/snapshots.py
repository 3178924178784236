"""The fallback where rows could not be proved: a sequence's whole state, usable at its exact position only.

To the cache it looks like a purely recurrent model: no planes, and a checkpoint that is everything.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

import numpy as np

from headstart.engines.llamacpp.binding import Context
from headstart.engines.llamacpp.transfer import WindowRows
from headstart.errors import EngineError
from headstart.prefix.block import RowBytes, StateLayout

__all__ = ["SnapshotTransfer", "snapshot_layout"]

HEAD = struct.Struct("<q")


def snapshot_layout(checkpoint_bytes: int, context_tokens: int, vocab_size: int) -> StateLayout:
    """`checkpoint_bytes` is a typical size: a snapshot grows with its sequence."""
    return StateLayout((), checkpoint_bytes, context_tokens, vocab_size)


class SnapshotTransfer:
    """Whole-sequence snapshots behind the operations of a RowTransfer; they start with their position."""

    def __init__(self, context: Context) -> None:
        self._context = context

    def rows_out(self, sequence: int, start: int, stop: int) -> RowBytes:
        return RowBytes(())

    def rows_in(self, sequence: int, rows: Sequence[RowBytes], position: int) -> None:
        return

    def checkpoint_out(self, sequence: int, position: int) -> bytes:
        return HEAD.pack(position) + self._context.get_state(sequence, partial=False).tobytes()

    def partial_in(
        self, sequence: int, position: int, window: WindowRows | None, checkpoint: bytes | None
    ) -> None:
        if checkpoint is None or len(checkpoint) < HEAD.size:
            raise EngineError("a whole-sequence snapshot is needed and was not given")
        (stands,) = HEAD.unpack_from(checkpoint)
        if stands != position:
            raise EngineError(f"snapshot stands at {stands}, expected {position}")
        self._context.remove(sequence)
        self._context.set_state(sequence, np.frombuffer(checkpoint, np.uint8)[HEAD.size :], partial=False)
