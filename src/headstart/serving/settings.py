"""The limits a scheduler works by."""

from __future__ import annotations

from dataclasses import dataclass

from headstart.prefix.block import StateLayout
from headstart.prefix.cache import PrefixCache
from headstart.prefix.ssd_tier import SsdTier
from headstart.serving.speculation import Speculate

IDLE_S = 600.0
"""After so long without work the ends of sequences are saved too. Sooner, a conversation that goes
on would have them written again and again."""


@dataclass(frozen=True)
class SchedulerSettings:
    """Limits of one scheduler. `ram_cache_bytes` 0 keeps live sequences as the only tier.
    `draft_tokens`: most tokens guessed at once."""

    max_concurrent_requests: int = 4
    queue_limit: int = 64
    prefill_chunk_tokens: int = 512
    cache_enabled: bool = True
    ram_cache_bytes: int = 4 << 30
    block_tokens: int = 256
    checkpoint_interval_tokens: int = 2048
    reproducible: bool = False
    speculate: Speculate = Speculate.OFF
    draft_tokens: int = 8


def new_cache(
    settings: SchedulerSettings, layout: StateLayout, canonical_grid: int, ssd: SsdTier | None
) -> PrefixCache:
    """The prefix cache of a scheduler: what `settings` say of it, for states laid out as `layout`."""
    return PrefixCache(
        layout,
        ram_bytes=settings.ram_cache_bytes,
        block_tokens=settings.block_tokens,
        checkpoint_interval=settings.checkpoint_interval_tokens,
        canonical_grid=canonical_grid,
        ssd=ssd,
    )
