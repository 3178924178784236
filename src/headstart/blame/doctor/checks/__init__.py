"""One check a file: from facts to complaints."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from headstart.blame.doctor.checks import (
    attribution,
    block_size,
    cache_budget,
    checkpoints,
    compaction,
    context,
    disk,
    git_status,
    memory,
    power,
    prefix_caching,
    side_requests,
    slots,
    speculation,
    windows,
)
from headstart.blame.doctor.facts import Complaint, Facts

Check = Callable[[Facts], Iterable[Complaint]]

CHECKS: tuple[Check, ...] = (
    context.check,
    prefix_caching.check,
    block_size.check,
    windows.check,
    checkpoints.check,
    cache_budget.check,
    speculation.check,
    slots.check,
    attribution.check,
    git_status.check,
    side_requests.check,
    compaction.check,
    memory.check,
    disk.check,
    power.check,
)


def examine(facts: Facts) -> list[Complaint]:
    """All complaints, the gravest first."""
    found = [complaint for check in CHECKS for complaint in check(facts)]
    return sorted(found, key=lambda one: -one.severity)
