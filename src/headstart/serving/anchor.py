"""Where a live sequence can be taken back to after tokens it read turned out not to be its own."""

from __future__ import annotations

from dataclasses import dataclass

from headstart.engines.base import Engine, SeqId, Step
from headstart.prefix.block import RowBytes
from headstart.prefix.tokens import TokenRun


@dataclass(frozen=True)
class Anchor:
    """What a sequence needs to come back to `position`, or to a place shortly after it.

    `window`: the rows of its last window, None where no layer has one. `checkpoint`: the recurrent
    state, None without recurrent layers. Held in memory only, and only as long as one draft.
    """

    position: int
    window: RowBytes | None
    checkpoint: bytes | None

    @staticmethod
    def take(engine: Engine, seq: SeqId) -> Anchor:
        """The anchor where `seq` stands. Raises EngineError."""
        layout, position = engine.layout, engine.position(seq)
        first = max(0, position - layout.window_tokens)
        return Anchor(
            position,
            engine.rows(seq, first, position) if layout.window_tokens else None,
            engine.checkpoint(seq) if layout.recurrent else None,
        )

    def back(self, engine: Engine, seq: SeqId, stop: int, tokens: TokenRun) -> None:
        """Takes `seq`, which has read on from here, back to `stop`; `tokens` are those up to there at
        least. Recurrent layers go back to the checkpoint and read what follows it again.

        Raises EngineError and EngineFull, after which `seq` is not to be used.
        """
        if engine.position(seq) == stop:
            return
        if self.checkpoint is None:
            engine.cut(seq, stop, self._window_before(engine, seq, stop), None)
            return
        engine.cut(seq, self.position, self.window, self.checkpoint)
        if stop > self.position:
            engine.forward([Step(seq, tokens[self.position : stop], wants_logits=False)])

    def _window_before(self, engine: Engine, seq: SeqId, stop: int) -> RowBytes | None:
        window = engine.layout.window_tokens
        first = max(0, stop - window)
        if self.window is None or engine.window_start(seq) <= first:
            return None
        start = max(0, self.position - window)
        parts = [self.window.cut(first - start, self.position - start)]
        if stop > self.position:
            parts.append(engine.rows(seq, self.position, stop))
        return RowBytes.join(parts)
