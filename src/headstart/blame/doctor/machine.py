"""Memory, disks and power of this machine."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

import psutil

from headstart.blame.doctor.facts import MachineFacts


def machine(kept: Mapping[str, Path]) -> MachineFacts:
    """`kept`: directories whose file systems matter, by what is in them."""
    memory, swap = psutil.virtual_memory(), _swap()
    battery = psutil.sensors_battery() if hasattr(psutil, "sensors_battery") else None
    disks = {what: free for what, path in kept.items() if (free := _free(path)) is not None}
    return MachineFacts(
        memory_bytes=int(memory.total),
        available_bytes=int(memory.available),
        swap_used_bytes=swap,
        disks=disks,
        on_battery=None if battery is None else not battery.power_plugged,
        battery_percent=None if battery is None else float(battery.percent),
    )


def commands() -> tuple[Sequence[str], ...]:
    """Command lines of processes that may be looked at. They may hold keys: only known flags leave."""
    found = []
    for process in psutil.process_iter(["cmdline"]):
        words = process.info.get("cmdline")
        if words:
            found.append(tuple(words))
    return tuple(found)


def _swap() -> int | None:
    try:
        return int(psutil.swap_memory().used)
    except (OSError, RuntimeError):
        return None


def _free(path: Path) -> int | None:
    for folder in (path, *path.parents):
        if folder.exists():
            try:
                return shutil.disk_usage(folder).free
            except OSError:
                return None
    return None
