"""mlx_lm.server: how far it is in a prompt, and what its cache holds. Only what is read is told."""

from __future__ import annotations

import re

from headstart.blame.logs.events import CacheState, LogEvent, NotStored, Started, Turn
from headstart.blame.logs.parser import NOTHING, Parser

NAME = "mlx-lm"
_PROGRESS = re.compile(r"Prompt processing progress: (\d{1,9})/(\d{1,9})")
_CACHE = re.compile(r"Prompt Cache: (\d{1,9}) sequences, (\d{1,9}(?:\.\d{1,6})?) GB")
_COMMON = re.compile(r"Common prefix \((\d{1,9})\) shorter than cache \((\d{1,9})\)")
_MIB_A_GB = 1e9 / 2**20


class MlxLm(Parser):
    """Parser of the log of `mlx_lm.server`."""

    name = NAME

    def __init__(self) -> None:
        self._shared: int | None = None
        self._held: int | None = None

    def feed(self, line: str) -> tuple[LogEvent, ...] | None:
        if "Prompt processing progress: " in line:
            return self._progress(line)
        if "Prompt Cache: " in line:
            cache = _CACHE.search(line)
            return (CacheState(int(cache[1]), float(cache[2]) * _MIB_A_GB),) if cache else NOTHING
        if "Common prefix (" in line:
            common = _COMMON.search(line)
            self._shared, self._held = (int(common[1]), int(common[2])) if common else (None, None)
            return NOTHING
        if "Starting httpd at " in line:
            return (Started(NAME),)
        if "trim" in line and "cache" in line and ("cannot" in line or "not trimmable" in line):
            return (NotStored("the cache of this model cannot be cut"),)
        return NOTHING if '"POST /v1/' in line and " - - [" in line else None

    def finish(self) -> tuple[LogEvent, ...]:
        return ()

    def _progress(self, line: str) -> tuple[LogEvent, ...]:
        found = _PROGRESS.search(line)
        if found is None or int(found[1]) < int(found[2]):
            return NOTHING
        shared, held = self._shared, self._held
        self._shared = self._held = None
        return (Turn(NAME, read=int(found[2]), shared=shared, held=held),)
