"""From the shape of a model's state blob to the planes the cache sees, and back."""

from __future__ import annotations

from dataclasses import dataclass

from headstart.engines.llamacpp.codec import KvShape, Shape
from headstart.prefix.block import Plane, StateLayout

__all__ = ["PartPlanes", "StateMap", "state_map"]


@dataclass(frozen=True)
class PartPlanes:
    """Which planes of the layout belong to a KV part: start..stop. `windowed`: a sliding-window part."""

    shape: KvShape
    start: int
    stop: int
    windowed: bool


@dataclass(frozen=True)
class StateMap:
    """How the layout's planes map onto the parts of a blob.

    `extra_plane`: index of the plane that holds the extra bytes of every cell, None where cells
    have none. `window_tokens`: rows before a position that its next token may look at.
    `checkpoint_bytes`: size of the recurrent part with its one cell. `empty_recurrent`: the same
    part without it.
    """

    shape: Shape
    parts: tuple[PartPlanes, ...]
    planes: tuple[Plane, ...]
    extra_plane: int | None
    window_tokens: int
    checkpoint_bytes: int
    empty_recurrent: bytes

    @property
    def full(self) -> PartPlanes | None:
        """The part that holds every token, None in a purely recurrent model."""
        return self.parts[0] if self.parts else None

    @property
    def windowed(self) -> PartPlanes | None:
        return next((part for part in self.parts if part.windowed), None)

    @property
    def partial_shape(self) -> Shape:
        """Shape of a blob made with PARTIAL_ONLY: the window part and the recurrent part."""
        kv = (self.windowed.shape,) if self.windowed else ()
        return Shape(kv, self.shape.recurrent_tensors)

    def layout(self, context_tokens: int, vocab_size: int) -> StateLayout:
        return StateLayout(self.planes, self.checkpoint_bytes, context_tokens, vocab_size)

    def row_bytes(self, *, windowed: bool) -> int:
        """Bytes of one token in the planes of the window part, or in all others."""
        return sum(plane.row_bytes for plane in self.planes if (plane.window_tokens > 0) is windowed)


def state_map(
    shape: Shape, *, windowed_part: int | None, window: int, checkpoint_bytes: int, empty_recurrent: bytes
) -> StateMap:
    """The map for a shape. `window` is llama.cpp's n_swa: a token sees itself and window - 1 before it."""
    planes: list[Plane] = []
    extra_plane = None
    if shape.kv and shape.kv[0].extra_bytes:
        extra_plane = 0
        planes.append(Plane("cells", shape.kv[0].extra_bytes))
    parts = []
    for index, kv in enumerate(shape.kv):
        windowed = index == windowed_part
        start = len(planes)
        name = "window" if windowed else ("full" if index == 0 else f"full{index}")
        reach = max(1, window - 1) if windowed else 0
        for kind, tensors in (("k", kv.keys), ("v", kv.values)):
            planes.extend(Plane(f"{name}.{kind}.{i}", t.row_bytes, reach) for i, t in enumerate(tensors))
        parts.append(PartPlanes(kv, start, len(planes), windowed))
    return StateMap(
        shape=shape,
        parts=tuple(parts),
        planes=tuple(planes),
        extra_plane=extra_plane,
        window_tokens=max((plane.window_tokens for plane in planes), default=0),
        checkpoint_bytes=checkpoint_bytes,
        empty_recurrent=empty_recurrent,
    )
