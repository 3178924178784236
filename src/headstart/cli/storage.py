"""The cache on disk as `headstart serve` opens it, and as it leaves it."""

from __future__ import annotations

import time
from collections.abc import Callable

from headstart.cli.terminal import Terminal, format_bytes
from headstart.config import Settings
from headstart.prefix.block import StateLayout
from headstart.prefix.ssd import SsdFiles
from headstart.prefix.ssd_counts import SsdStatistics
from headstart.prefix.ssd_tier import SsdSettings, SsdTier

FLUSH_S = 120.0
"""Longest time that what is not on disk yet may take to get there at the end."""

PROGRESS_S = 1.0


def take_files(settings: Settings) -> SsdFiles | None:
    """The store's files, owned by this process from now on; None where there is to be no cache on
    disk. Raises ConfigError where another process owns them or they cannot be used."""
    if not settings.uses_ssd:
        return None
    return SsdFiles(settings.ssd_directory, read_only=settings.cache_read_only)


def open_tier(settings: Settings, layout: StateLayout, files: SsdFiles, terminal: Terminal) -> SsdTier:
    """The SSD tier over `files`; says how far it is where that takes over a second."""
    say = every_second(terminal.step)
    return SsdTier(
        SsdSettings(
            settings.ssd_directory,
            budget_bytes=settings.ssd_cache_bytes,
            reserve_bytes=settings.ssd_reserve_bytes,
            flush_interval_s=settings.flush_interval_s,
            read_only=settings.cache_read_only,
        ),
        layout,
        settings.block_size,
        progress=lambda what, done, total: say(f"{what}: {done:,} of {total:,}"),
        files=files,
    )


def close_tier(tier: SsdTier, before: SsdStatistics, terminal: Terminal, timeout_s: float = FLUSH_S) -> None:
    """Writes what is not on disk yet, says what was and was not written since `before`, and lets go
    of the store. After `timeout_s` the rest is given up; it goes with the process."""
    if tier.settings.read_only:
        tier.close()
        return
    say = every_second(terminal.step)
    left = tier.flush(timeout_s=timeout_s, progress=lambda count: say(f"writing the cache: {count:,} left"))
    terminal.fact("ssd", describe_end(before, tier.statistics(), left, tier.unsaved_bytes()))
    if not left:
        tier.close()


def describe_end(before: SsdStatistics, after: SsdStatistics, left: int, left_bytes: int) -> str:
    """One line: what was written at the end and what was not."""
    size = format_bytes(after.written_bytes - before.written_bytes)
    parts = [f"{after.saved - before.saved:,} entries ({size}) written at the end"]
    failed = after.write_errors - before.write_errors
    refused = after.refused - before.refused
    if left:
        parts.append(f"{left:,} entries ({format_bytes(left_bytes)}) not written in time")
    if failed:
        parts.append(f"{failed:,} entries could not be written")
    if refused:
        parts.append(f"{refused:,} entries did not fit in --ssd-cache")
    if len(parts) == 1:
        parts.append("all of the cache is on disk")
    return "; ".join(parts)


def every_second(say: Callable[[str], None]) -> Callable[[str], None]:
    """`say`, but nothing in the first second and then at most once a second."""
    last_s = time.monotonic()

    def paced(text: str) -> None:
        nonlocal last_s
        now_s = time.monotonic()
        if now_s - last_s >= PROGRESS_S:
            last_s = now_s
            say(text)

    return paced
