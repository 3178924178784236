"""llama.cpp's server: what it says about itself while it loads, and about its cache in memory."""

from __future__ import annotations

import re

from headstart.blame.logs.events import CacheState, Evicted, Fact, Loaded, LogEvent, Started, TooLarge
from headstart.blame.logs.parser import NOTHING, whole

# What stands before the message: nothing, a time and a level, and the router's number of a child.
_OWN = re.compile(
    r"(?:^|[ \]])(?:(?:srv|slot|cmn|que|res|spec) +[\w():~]+ "
    r"|(?:main|print_info|llama_\w+|ggml_\w+|load_tensors|update|init|load|alloc)\s*:)"
)
_SIZE = r"(\d{1,12}(?:\.\d{1,9})?)"
_STATE = re.compile(rf"cache state: (\d{{1,12}}) prompts, {_SIZE} MiB(?: \(limits: {_SIZE} MiB)?")
_LARGE = re.compile(rf"state size {_SIZE} MiB exceeds cache size limit {_SIZE} MiB")
_EVICTED = re.compile(rf"removing oldest entry \(size = {_SIZE} MiB")


class LlamaFacts:
    """The lines that belong to no slot."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._context: int | None = None

    def feed(self, line: str) -> tuple[LogEvent, ...] | None:
        if "removing oldest entry" in line:
            size = _EVICTED.search(line)
            return (Evicted(float(size[1]) if size else None),)
        if "cache state: " in line:
            return self._state(line)
        if "exceeds cache size limit" in line:
            large = _LARGE.search(line)
            return (TooLarge(float(large[1]), float(large[2])),) if large else NOTHING
        if not _OWN.search(line[:160]):
            return None
        return self._start(line)

    def context(self, tokens: int | None) -> tuple[LogEvent, ...]:
        """The context of a slot, told once a change."""
        if tokens is None or tokens == self._context:
            return NOTHING
        self._context = tokens
        return (Fact("context_tokens", str(tokens)),)

    def _state(self, line: str) -> tuple[LogEvent, ...]:
        found = _STATE.search(line)
        if found is None:
            return NOTHING
        return (CacheState(int(found[1]), float(found[2]), float(found[3]) if found[3] else None),)

    def _start(self, line: str) -> tuple[LogEvent, ...]:
        if "loading model '" in line:
            self._context = None
            return (Started(self.name),)
        if "model loaded" in line:
            return (Loaded(),)
        if "n_slots = " in line:
            slots = whole(line, "n_slots = ")
            context = self.context(whole(line, "n_ctx_slot = "))
            return ((Fact("slots", str(slots)),) if slots else ()) + context
        return _told(line)


def _told(line: str) -> tuple[LogEvent, ...]:
    if "prompt cache is enabled" in line:
        return _fact("cache_limit_mib", whole(line, "size limit: "))
    if "context checkpoints enabled" in line:
        return _fact("checkpoints", whole(line, "max = ")) + _fact(
            "checkpoint_step", whole(line, "spacing = ")
        )
    if "n_swa" in line and "print_info" in line:
        return _fact("window_tokens", whole(line.replace(" ", ""), "n_swa="))
    if "build_info: " in line:
        return (Fact("version", line.split("build_info: ", 1)[1].strip()[:40]),)
    return next((fact for sign, fact in _SIGNS if sign in line), NOTHING)


_SIGNS: tuple[tuple[str, tuple[LogEvent, ...]], ...] = (
    ("prompt cache is disabled", (Fact("cache_limit_mib", "0"),)),
    ("llama_memory_recurrent: size", (Fact("recurrent", "yes"),)),
    ("speculative decoding context initialized", (Fact("speculative", "yes"),)),
)


def _fact(name: str, value: int | None) -> tuple[LogEvent, ...]:
    return () if value is None else (Fact(name, str(value)),)
