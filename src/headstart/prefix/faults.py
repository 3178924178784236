"""Faults on purpose: what a store answers when the medium under it fails."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from headstart.prefix.block import RowBytes

FileBytes = npt.NDArray[np.uint8]
CRASH_STATUS = 91
"""Exit status of a process that a crash was ordered for."""


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


class Step(StrEnum):
    """Moments in the life of a file of the SSD tier, in the order in which they come."""

    OPEN = "open"
    """The temporary file is about to be made."""
    WRITTEN = "written"
    """All bytes are in the temporary file, not yet flushed."""
    FLUSHED = "flushed"
    """The temporary file is on the medium."""
    RENAMED = "renamed"
    """The file has its name; the catalog does not know it."""
    CATALOGUED = "catalogued"
    """The catalog has its row, not yet committed."""
    COMMITTED = "committed"
    """The catalog has been committed."""
    READ = "read"
    """A file is about to be read."""


class FileFaults:
    """Stands at every step of the SSD tier's files and does there what it was told to.

    Orders are kept until `heal`. `steps` counts how often each step was passed.
    """

    def __init__(self) -> None:
        self.steps = dict.fromkeys(Step, 0)
        self._orders: dict[Step, list[Callable[[Path], None]]] = {}
        self._spoilers: list[Callable[[FileBytes], FileBytes]] = []

    def fail(self, step: Step, error_number: int, *, after: int = 0) -> None:
        """From the step after `after` more on, `step` raises OSError with `error_number`."""
        first = self.steps[step] + after

        def order(path: Path) -> None:
            if self.steps[step] > first:
                raise OSError(error_number, os.strerror(error_number), str(path))

        self._order(step, order)

    def delay(self, step: Step, seconds_s: float) -> None:
        """`step` takes `seconds_s` longer."""
        self._order(step, lambda _: time.sleep(seconds_s))

    def crash(self, step: Step, *, after: int = 0) -> None:
        """At `step`, after `after` more, the process ends with CRASH_STATUS; nothing is tidied up."""
        first = self.steps[step] + after

        def order(_: Path) -> None:
            if self.steps[step] > first:
                os._exit(CRASH_STATUS)

        self._order(step, order)

    def _order(self, step: Step, order: Callable[[Path], Any]) -> None:
        self._orders.setdefault(step, []).append(order)

    def short_read(self, keep: Callable[[int], int]) -> None:
        """Reads end after `keep(size)` bytes."""
        self._spoilers.append(lambda data: data[: keep(len(data))])

    def flip_bit(self, offset: Callable[[int], int], bit: int = 0) -> None:
        """Bit `bit` of the byte at `offset(size)` reads as its opposite."""

        def flipped(data: FileBytes) -> FileBytes:
            data = data.copy()
            data[offset(len(data))] ^= 1 << bit
            return data

        self._spoilers.append(flipped)

    def heal(self) -> None:
        """Forgets all orders."""
        self._orders.clear()
        self._spoilers.clear()

    def at(self, step: Step, path: Path) -> None:
        """`step` of the file at `path` has come. Raises OSError where that was ordered."""
        self.steps[step] += 1
        for order in self._orders.get(step, ()):
            order(path)

    def seen(self, data: FileBytes) -> FileBytes:
        """What the reader gets to see of a file's bytes."""
        for spoil in self._spoilers:
            data = spoil(data)
        return data
