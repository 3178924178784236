"""What a model leaves behind when it reads tokens, as bytes, and how those bytes are laid out.

Per-token state (attention K and V) is a *row* a token and can be cut at any token. It is held
plane by plane: a plane is one tensor of one layer, say the keys of layer 3, with a fixed number
of bytes a token. Recurrent state belongs to an exact position and cannot be cut: a checkpoint.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from headstart.prefix.tokens import TokenRun

__all__ = ["Bytes", "Checkpoint", "Plane", "RowBytes", "StateLayout", "TokenRun"]

Bytes = npt.NDArray[np.uint8]


@dataclass(frozen=True)
class Plane:
    """One tensor of per-token state: `row_bytes` for every token.

    `window_tokens` is 0 for full attention. Otherwise the layer looks back only that far, so a
    restore at position p needs this plane's rows of tokens max(0, p - window_tokens) .. p only.
    """

    name: str
    row_bytes: int
    window_tokens: int = 0


@dataclass(frozen=True)
class StateLayout:
    """The kinds and sizes of state one loaded model keeps. All that the cache knows of an engine.

    `checkpoint_bytes` is the size of one recurrent checkpoint; 0 means no recurrent layers.
    """

    planes: tuple[Plane, ...]
    checkpoint_bytes: int
    context_tokens: int
    vocab_size: int

    @property
    def row_bytes(self) -> int:
        """Bytes one token leaves behind over all planes."""
        return sum(plane.row_bytes for plane in self.planes)

    @property
    def window_tokens(self) -> int:
        """The widest window of any windowed plane; 0 where there is none."""
        return max((plane.window_tokens for plane in self.planes), default=0)

    @property
    def recurrent(self) -> bool:
        """Whether restoring needs a checkpoint at the exact position."""
        return self.checkpoint_bytes > 0


@dataclass(frozen=True)
class RowBytes:
    """The rows of a run of tokens: for each plane of the layout an array (tokens, row_bytes).

    Immutable by contract: the arrays are never written after they are put in here. `sole`: their memory
    holds nothing but these rows, and nobody else will ever write it, so they may be kept as they are.
    """

    planes: tuple[Bytes, ...]
    sole: bool = False

    def __len__(self) -> int:
        return len(self.planes[0]) if self.planes else 0

    @property
    def nbytes(self) -> int:
        return sum(plane.nbytes for plane in self.planes)

    def cut(self, start: int, stop: int) -> RowBytes:
        """Rows start..stop as views; copies nothing."""
        if start == 0 and stop >= len(self):
            return self
        return RowBytes(tuple(plane[start:stop] for plane in self.planes))

    def owned(self) -> RowBytes:
        """The same rows in memory of their own, so that a large buffer behind a view can go."""
        if self.sole:
            return self
        return RowBytes(tuple(plane.copy() for plane in self.planes), sole=True)

    @staticmethod
    def join(parts: Sequence[RowBytes]) -> RowBytes:
        """The rows of `parts`, one after another, in memory of their own."""
        if len(parts) == 1:
            return parts[0].owned()
        columns = zip(*(part.planes for part in parts), strict=True)
        return RowBytes(tuple(np.concatenate(column) for column in columns), sole=True)


@dataclass(frozen=True)
class Checkpoint:
    """Recurrent state after exactly `position` tokens, as opaque bytes of the engine."""

    position: int
    data: bytes
