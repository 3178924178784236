"""What lanes and the shared context do alike with a live sequence: where it stands, what lies before it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

from headstart.engines.base import SeqId
from headstart.engines.llamacpp.transfer import WindowRows
from headstart.errors import EngineError
from headstart.prefix.block import RowBytes, StateLayout

__all__ = ["LiveSequence", "closed_on_failure", "window_before"]


@dataclass(kw_only=True)
class LiveSequence:
    """Where a sequence stands. `window_start`: lowest token whose window rows are really there."""

    position: int = 0
    window_start: int = 0

    def stands(self, position: int, window_tokens: int) -> None:
        """It has been put at `position`, with the window rows before it and no others."""
        self.position = position
        self.window_start = max(0, position - window_tokens) if window_tokens else 0


class _Sequences(Protocol):
    """The part of the engine port that is needed here."""

    layout: StateLayout

    def window_start(self, seq: SeqId) -> int: ...
    def rows(self, seq: SeqId, start: int, stop: int) -> RowBytes: ...
    def close(self, seq: SeqId) -> None: ...


def window_before(
    sequences: _Sequences, seq: SeqId, position: int, given: RowBytes | None
) -> WindowRows | None:
    """The window rows before `position`: as given, or those that are still in the engine."""
    window = sequences.layout.window_tokens
    if not window:
        return None
    if given is not None:
        return WindowRows((given,), position - len(given))
    start = max(0, position - window)
    if sequences.window_start(seq) > start:
        raise EngineError(f"window rows {start}..{position} are gone from the engine and were not given")
    return WindowRows((sequences.rows(seq, start, position),), start)


@contextmanager
def closed_on_failure(sequences: _Sequences, seq: SeqId) -> Iterator[None]:
    """No sequence stays half restored: it is closed before the error goes on."""
    try:
        yield
    except EngineError:
        sequences.close(seq)
        raise
