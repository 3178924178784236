"""headstart: it logs no line a request (GET /v1/headstart/requests/{id} tells), only what went wrong."""

from __future__ import annotations

import re

from headstart.blame.logs.events import LogEvent, NotStored
from headstart.blame.logs.parser import NOTHING, Parser

NAME = "headstart"
_OWN = re.compile(r"\b(?:DEBUG|INFO|WARNING|ERROR) headstart\.[\w.]+: (.*)")
_LOST = ("was not used", "was refused", "was not stored", "cache is full", "could not be written")


class Headstart(Parser):
    """Parser of what `headstart serve` writes."""

    name = NAME

    def feed(self, line: str) -> tuple[LogEvent, ...] | None:
        found = _OWN.search(line)
        if found is None:
            return None
        return (NotStored(found[1][:200]),) if any(word in found[1] for word in _LOST) else NOTHING

    def finish(self) -> tuple[LogEvent, ...]:
        return ()
