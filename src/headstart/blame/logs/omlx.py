"""oMLX: its line about a prompt that is read again, its probe, and what it did not store."""

from __future__ import annotations

import re

from headstart.blame.logs.events import Diverged, Evicted, LogEvent, NotStored, Turn
from headstart.blame.logs.parser import NOTHING, Parser, whole

NAME = "omlx"
_AGAIN = re.compile(
    r"prefix cache: request (\S{1,80}) re-prefills (\d{1,9}) of (\d{1,9}) tokens \(reused (\d{1,9})\)"
)
_SHARED = re.compile(r"closest stored sequence \S{1,80} shares the first (\d{1,9}) of (\d{1,9})")
_PROBE = re.compile(r"first divergence at token (\d{1,9}): stored=(.{0,400}?) vs prompt=(.{0,400})")
_OWN = re.compile(r"\bomlx[.\w]*\b")


class Omlx(Parser):
    """Parser of ~/.omlx/logs/server.log."""

    name = NAME

    def feed(self, line: str) -> tuple[LogEvent, ...] | None:
        if "re-prefills" in line:
            return _again(line)
        if "first divergence at token" in line:
            probe = _PROBE.search(line)
            if probe is None:
                return NOTHING
            return (Diverged(int(probe[1]), probe[2].strip("'\". "), probe[3].strip("'\". ")),)
        if "boundary_snapshot_unavailable" in line:
            return (NotStored("boundary_snapshot_unavailable"),)
        if "invalidated_stale=" in line:
            blocks = whole(line, "invalidated_stale=")
            return (Evicted(entries=blocks),) if blocks else NOTHING
        return NOTHING if _OWN.search(line) else None

    def finish(self) -> tuple[LogEvent, ...]:
        return ()


def _again(line: str) -> tuple[LogEvent, ...]:
    found = _AGAIN.search(line)
    if found is None:
        return NOTHING
    read, total, cached = int(found[2]), int(found[3]), int(found[4])
    shared = _SHARED.search(line)
    return (
        Turn(
            NAME,
            task=found[1],
            prompt_tokens=total,
            cached=cached,
            read=read,
            shared=int(shared[1]) if shared else None,
            held=int(shared[2]) if shared else None,
            restored=cached or None,
        ),
    )
