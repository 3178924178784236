"""LM Studio: the summaries of its two engines, llama.cpp and MLX."""

from __future__ import annotations

import re

from headstart.blame.logs.events import LogEvent, NotStored, Turn
from headstart.blame.logs.parser import NOTHING, Parser, whole

NAME = "lmstudio"
_REUSE = re.compile(r"Cache reuse summary: (\d{1,9})/(\d{1,9}) of prompt")
_OWN = re.compile(r"\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\]\[\w{1,10}\]")


class LmStudio(Parser):
    """Parser of its server log, as `lms log stream` and the developer page show it."""

    name = NAME

    def __init__(self) -> None:
        self._reused: int | None = None
        self._total: int | None = None

    def feed(self, line: str) -> tuple[LogEvent, ...] | None:
        if "Cache reuse summary: " in line:
            found = _REUSE.search(line)
            self._reused, self._total = (int(found[1]), int(found[2])) if found else (None, None)
            return NOTHING
        if "Total prompt tokens: " in line:
            self._total = whole(line, "Total prompt tokens: ")
            return NOTHING
        if "Prompt tokens to decode: " in line:
            return self._decoded(whole(line, "Prompt tokens to decode: "))
        if "Prompt cache restore: " in line:
            return _restored(line)
        if "VLM prompt cache disk usage" in line:
            return NOTHING
        return NOTHING if _OWN.match(line) else None

    def finish(self) -> tuple[LogEvent, ...]:
        return ()

    def _decoded(self, read: int | None) -> tuple[LogEvent, ...]:
        """The last of three lines; a hit of everything leaves one token to read."""
        total, self._total = self._total, None
        reused, self._reused = self._reused, None
        if read is None:
            return NOTHING
        cached = None if total is None else max(0, total - read)
        turn = Turn(NAME, prompt_tokens=total, cached=cached, read=read, shared=reused)
        lost = reused is not None and cached is not None and reused - cached > 1
        return (turn, NotStored("less was reused than the summary says")) if lost else (turn,)


def _restored(line: str) -> tuple[LogEvent, ...]:
    cached, read = whole(line, "cached_tokens="), whole(line, "uncached_tokens=")
    if " cached_tokens=" not in line or cached is None or read is None:
        return NOTHING
    return (Turn(NAME, prompt_tokens=cached + read, cached=cached, read=read),)
