"""Whether caches on disk have room."""

from __future__ import annotations

from collections.abc import Iterator

from headstart.blame.doctor.facts import GIB, Complaint, Facts, Severity, complain
from headstart.blame.finding import Fix

LEAST_BYTES = 10 * GIB


def check(facts: Facts) -> Iterator[Complaint]:
    for what, free in facts.machine.disks.items():
        if free < LEAST_BYTES:
            yield complain(
                Severity.WARNING if free < LEAST_BYTES // 5 else Severity.NOTE,
                "disk",
                "DISK_LOW",
                f"{free / GIB:.1f} GiB are free where {what} is",
                "what is cached on disk is dropped early, and read again after a restart",
                fix=Fix("make room; headstart's own cache says what it holds", "headstart cache ls"),
            )
