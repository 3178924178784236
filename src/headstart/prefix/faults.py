"""Faults on purpose: what a store answers when the medium under it fails."""

from __future__ import annotations

from enum import StrEnum

from headstart.prefix.block import RowBytes


class Fault(StrEnum):
    """FAIL: reading raises OSError. TRUNCATE: the last row or byte is missing. LOSE: nothing is there."""

    FAIL = "fail"
    TRUNCATE = "truncate"
    LOSE = "lose"


class FaultInjector:
    """Stands between a store and its reader and spoils the reads it was told to.

    Without orders it passes everything on. `reads` counts what went through.
    """

    def __init__(self) -> None:
        self.reads = 0
        self._orders: dict[int, Fault] = {}

    def spoil(self, fault: Fault, *, after_reads: int = 0) -> None:
        """Spoils one read: the next, or the one after `after_reads` more."""
        self._orders[self.reads + after_reads] = fault

    def pass_on(self, payload: object) -> object:
        """What the reader gets to see of `payload`. Raises OSError for FAIL."""
        fault = self._orders.pop(self.reads, None)
        self.reads += 1
        match fault:
            case Fault.FAIL:
                raise OSError("injected read failure")
            case Fault.LOSE:
                return None
            case Fault.TRUNCATE if isinstance(payload, RowBytes):
                return payload.cut(0, len(payload) - 1)
            case Fault.TRUNCATE if isinstance(payload, bytes):
                return payload[:-1]
        return payload
