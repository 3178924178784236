"""What every engine refuses before it changes anything."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from headstart.engines.base import SeqId, Step
from headstart.errors import EngineError, EngineFull
from headstart.prefix.block import RowBytes, StateLayout

__all__ = ["check_rows", "check_steps"]


def check_steps(
    steps: Sequence[Step], position: Callable[[SeqId], int], layout: StateLayout, most_tokens: int
) -> None:
    """Raises EngineError for steps that no sequence could make, EngineFull where one would leave the context.
    `position`: where a sequence stands, or EngineError where it is not open."""
    if len({step.seq for step in steps}) != len(steps):
        raise EngineError("one forward may carry one step a sequence")
    for step in steps:
        stands, count = position(step.seq), len(step.tokens)
        if not 1 <= count <= most_tokens:
            raise EngineError(f"a step carries 1..{most_tokens} tokens, not {count}")
        if not 0 <= step.wants_logits <= count:
            raise EngineError(f"{int(step.wants_logits)} scores asked of a step of {count} tokens")
        if step.tokens.min() < 0 or step.tokens.max() >= layout.vocab_size:
            raise EngineError(f"token ids are 0..{layout.vocab_size - 1}: got {step.tokens.tolist()}")
        if stands + count > layout.context_tokens:
            raise EngineFull(f"{stands} + {count} tokens exceed the context of {layout.context_tokens}")


def check_rows(rows: RowBytes, layout: StateLayout, count: int) -> None:
    """Raises EngineError unless `rows` are `count` rows of every plane."""
    for plane, array in zip(layout.planes, rows.planes, strict=False):
        if array.shape != (count, plane.row_bytes) or array.dtype != np.uint8:
            raise EngineError(
                f"plane {plane.name} must be uint8 ({count}, {plane.row_bytes}), "
                f"not {array.dtype} {array.shape}"
            )
    if len(rows.planes) != len(layout.planes):
        raise EngineError(f"rows have {len(rows.planes)} planes, the layout {len(layout.planes)}")
