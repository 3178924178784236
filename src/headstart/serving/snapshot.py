"""What the scheduler says of itself."""

from __future__ import annotations

from dataclasses import dataclass, field

from headstart.prefix.cache import CacheStatistics


@dataclass(frozen=True)
class SchedulerSnapshot:
    """Where the scheduler stands, and totals since it started. Counted, never estimated."""

    running: int = 0
    waiting: int = 0
    idle_sequences: int = 0
    steps: int = 0
    engine_s: float = 0.0
    busy_s: float = 0.0
    decoded_tokens: int = 0
    prefilled_tokens: int = 0
    shared_waits: int = 0
    preemptions: int = 0
    drafted_tokens: int = 0
    accepted_tokens: int = 0
    requests: dict[str, int] = field(default_factory=dict)
    cache: CacheStatistics | None = None


@dataclass
class Totals:
    """Running totals of the engine thread; see SchedulerSnapshot for the public form."""

    steps: int = 0
    engine_s: float = 0.0
    busy_s: float = 0.0
    decoded_tokens: int = 0
    prefilled_tokens: int = 0
    shared_waits: int = 0
    preemptions: int = 0
    drafted_tokens: int = 0
    accepted_tokens: int = 0
