"""What the SSD tier counts."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class SsdCounts:
    """Running totals. `read_bytes`: of state brought back, checked and used."""

    saved: int = 0
    refused: int = 0
    write_errors: int = 0
    read_bytes: int = 0
    read_failures: int = 0


@dataclass(frozen=True)
class SsdStatistics:
    """Where the SSD tier stands. `used_bytes` of all files; `limit_bytes`: the budget, or what the file
    system allows where that is less. `written_bytes`: of all files written since the start;
    `waiting`: entries not written yet. The totals are since the start."""

    used_bytes: int
    limit_bytes: int
    blocks: int
    marks: int
    waiting: int
    saved: int
    refused: int
    evicted: int
    write_errors: int
    written_bytes: int
    read_bytes: int
    read_failures: int
