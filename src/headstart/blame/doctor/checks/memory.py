"""Whether model and cache fit into the machine's memory."""

from __future__ import annotations

from collections.abc import Iterator

from headstart.blame.doctor.facts import GIB, MIB, Complaint, Facts, Severity, complain
from headstart.blame.finding import Fix

LOW_SHARE = 0.05


def check(facts: Facts) -> Iterator[Complaint]:
    machine = facts.machine
    if machine.memory_bytes is None:
        return
    if machine.available_bytes is not None and machine.available_bytes < LOW_SHARE * machine.memory_bytes:
        swap = (
            f", and {machine.swap_used_bytes / GIB:.1f} GiB are swapped out"
            if machine.swap_used_bytes
            else ""
        )
        yield complain(
            Severity.WARNING,
            "memory",
            "MEMORY_LOW",
            f"{machine.available_bytes / GIB:.1f} of {machine.memory_bytes / GIB:.1f} GiB are free{swap}",
            "models are unloaded and caches shrink when memory runs out, and prompts are read again",
            fix=Fix("close what is not needed, or take a smaller model or cache"),
        )
    for server in facts.servers:
        budget = (server.cache_mib or 0) * MIB
        if server.model_bytes and budget > 0 and server.gpu_bytes in (None, 0):
            needed = server.model_bytes + budget
            if needed > machine.memory_bytes:
                yield complain(
                    Severity.WARNING,
                    server.name,
                    "MEMORY_LOW",
                    f"the model takes {server.model_bytes / GIB:.1f} GiB and its cache may take "
                    f"{budget / GIB:.1f} GiB more, of {machine.memory_bytes / GIB:.1f} GiB",
                    "the machine swaps, or ends the server, before the cache is full",
                    fix=Fix("a smaller budget for the cache", f"--cache-ram {max(512, budget // MIB // 4)}"),
                )
