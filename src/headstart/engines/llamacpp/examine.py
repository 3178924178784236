"""What a model's state looks like, found out in a small context before any large one is made."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from headstart.engines.llamacpp import codec
from headstart.engines.llamacpp.binding import Context, ContextSettings, Model, Run
from headstart.engines.llamacpp.layout import StateMap, state_map
from headstart.errors import EngineError
from headstart.prefix.block import Bytes

__all__ = ["Examined", "examine"]

TOKENS = 5
CELLS = 256


@dataclass(frozen=True)
class Examined:
    """`state` is None, with the `reason`, where the blob could not be understood.

    `snapshot_bytes`: size of a whole-sequence blob of a few tokens. `compute_bytes`:
    work memory of a context.
    """

    state: StateMap | None
    reason: str | None
    snapshot_bytes: int
    compute_bytes: int


def examine(model: Model, settings: ContextSettings) -> Examined:
    """Reads a few tokens and takes the blob they leave behind apart.

    Raises ModelError where no context can be made, EngineError where the model cannot compute.
    """
    small = replace(
        settings, cells=CELLS, batch_tokens=min(CELLS, settings.batch_tokens), sequences=1, outputs=1
    )
    context = Context(model, small, None)
    try:
        tokens = (np.arange(TOKENS, dtype=np.int32) % model.vocab_size).astype(np.int32)
        context.decode([Run(0, 0, tokens, True)])
        blob = context.get_state(0, partial=False)
        partial = context.get_state(0, partial=True)
        try:
            state, reason = _state(blob, partial, model.window), None
        except EngineError as error:
            state, reason = None, str(error)
        return Examined(state, reason, len(blob), context.compute_bytes)
    finally:
        context.free()


def _state(blob: Bytes, partial: Bytes, window: int) -> StateMap:
    positions = np.arange(TOKENS, dtype=np.int32)
    shape = codec.discover(blob, positions)
    partial_shape = codec.discover(partial, positions)
    windowed_part = 1 if len(shape.kv) == 2 and partial_shape.kv == shape.kv[1:] else None
    if windowed_part is not None and window < 2:
        raise EngineError(f"the model has windowed layers but a window of {window} tokens")
    recurrent = codec.parse(blob, shape).recurrent
    part = b"" if recurrent is None else recurrent.part.tobytes()
    return state_map(
        shape,
        windowed_part=windowed_part,
        window=window,
        checkpoint_bytes=len(part),
        empty_recurrent=b"" if recurrent is None else codec.empty_recurrent(recurrent.part).tobytes(),
    )
