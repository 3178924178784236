"""The ranks' wire over MLX's own collectives: the ring or any other backend that `mlx.launch` set up."""

from __future__ import annotations

import mlx.core as mx
import numpy as np

from headstart.prefix.block import Bytes

_FIRST_BYTES = 4096
"""Sent at once; most calls fit, and cost one exchange."""
_LENGTH_BYTES = 8


class MlxWire:
    """Implements `ranks.Wire`. From one thread, that of the engine."""

    def __init__(self, group: mx.distributed.Group) -> None:
        self._group = group
        self.rank: int = group.rank()
        self.size: int = group.size()

    def tell(self, message: bytes) -> bytes:
        """The sum of the first rank's bytes and zeros is the first rank's bytes."""
        told = len(message).to_bytes(_LENGTH_BYTES, "little") + message
        first = self._from_first(told[:_FIRST_BYTES], _FIRST_BYTES)
        length = int.from_bytes(first[:_LENGTH_BYTES], "little")
        left = length + _LENGTH_BYTES - _FIRST_BYTES
        rest = self._from_first(told[_FIRST_BYTES:], left) if left > 0 else b""
        return (first + rest)[_LENGTH_BYTES : _LENGTH_BYTES + length]

    def _from_first(self, mine: bytes, length: int) -> bytes:
        data = mine.ljust(length, b"\0") if self.rank == 0 else bytes(length)
        return self._done(
            mx.distributed.all_sum(_array(np.frombuffer(data, np.uint8)), group=self._group)
        ).tobytes()

    def gather(self, mine: Bytes) -> list[Bytes]:
        if not len(mine):
            return [mine] * self.size
        found = self._done(mx.distributed.all_gather(_array(mine)[None], group=self._group))
        return list(found)

    @staticmethod
    def _done(answer: mx.array) -> Bytes:
        mx.eval(answer)
        return np.array(answer, copy=True)


def _array(data: Bytes) -> mx.array:
    return mx.array(data)
