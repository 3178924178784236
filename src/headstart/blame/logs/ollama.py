"""Ollama: the lines of its own runner for MLX and of llama.cpp's server inside it.

`cache hit` is written for any reuse, be it 68 tokens of 633: `matched` says where prompts part, `cached`
where the runner could go on, and `left` what it reads.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime

from headstart.blame.logs.events import (
    Evicted,
    Fact,
    Loaded,
    LogEvent,
    NotStored,
    Restored,
    Started,
    Truncated,
    Turn,
)
from headstart.blame.logs.llama_server import LlamaServer
from headstart.blame.logs.parser import NOTHING, Parser, decimal, whole

NAME = "ollama"
_NUMBER = re.compile(r" (total|matched|cached|left)=(\d{1,18})(?!\d)")
_FINISHED = re.compile(r" processed=(\d+) total=\1\b")
_UNFINISHED = re.compile(r'msg="Prompt processing progress" processed=(\d+) total=(?!\1\b)')
_CONTEXT = re.compile(r"(?:--ctx-size|-c|--num-ctx|num_ctx)[ =](\d{1,9})\b")
_CONFIG = re.compile(r"\b(OLLAMA_CONTEXT_LENGTH|OLLAMA_NUM_PARALLEL):(\d{1,9})\b")


class Ollama(Parser):
    """Parser of the log of `ollama serve`."""

    name = NAME
    passed_over = ("[GIN] ",)
    passed_over_like = _UNFINISHED

    def __init__(self) -> None:
        self._runner = LlamaServer(NAME)
        self._numbers: dict[str, int] | None = None
        self._since: float | None = None
        self._took_s: float | None = None
        self._announced = False

    def feed(self, line: str) -> tuple[LogEvent, ...] | None:
        at = line.find(" msg=")
        if at > 0 and "level=" in line:
            begin = at + len(" msg=")
            quote = '"' if line.startswith('"', begin) else ""
            end = line.find(quote or " ", begin + 1)
            says = line[begin + len(quote) : end if end > 0 else None]
            handle = _HANDLERS.get(says)
            return handle(self, line) if handle else self._message(says, line)
        events = self._runner.feed(line)
        if events and isinstance(events[0], Started):
            announced, self._announced = self._announced, False
            return NOTHING if announced else events
        return events

    def finish(self) -> tuple[LogEvent, ...]:
        return (*self._ended(), *self._runner.finish())

    def _message(self, says: str, line: str) -> tuple[LogEvent, ...]:
        if says.startswith(("starting runner", "starting llama server", "starting llama-server")):
            self._announced = True
            context = _CONTEXT.search(line)
            return (Started(NAME, int(context[1]) if context else None),)
        return _trouble(says, line) or _loading(says, line)

    def _cache(self, line: str) -> tuple[LogEvent, ...]:
        ended = self._ended()
        numbers = {name: int(digits) for name, digits in _NUMBER.findall(line)}
        if "total" not in numbers or "cached" not in numbers:
            return ended
        self._numbers, self._since = numbers, _seconds(line)
        cached = numbers["cached"]
        return (*ended, Restored(cached, numbers.get("matched"))) if cached else ended

    def _progress(self, line: str) -> tuple[LogEvent, ...]:
        """Time to read, once the last token is read."""
        if self._since is not None and _FINISHED.search(line):
            now = _seconds(line)
            self._took_s = None if now is None or now < self._since else now - self._since
        return NOTHING

    def _slot(self, line: str) -> tuple[LogEvent, ...]:
        prompt, used = whole(line, "prompt="), whole(line, "used=")
        if prompt is None or used is None:
            return NOTHING
        return (Turn(NAME, whole(line, " id="), prompt_tokens=prompt, cached=used, read=prompt - used),)

    def _ended(self) -> tuple[LogEvent, ...]:
        numbers, took_s = self._numbers, self._took_s
        self._numbers = self._since = self._took_s = None
        if numbers is None:
            return NOTHING
        total, cached = numbers["total"], numbers["cached"]
        turn = Turn(
            NAME,
            prompt_tokens=total,
            cached=cached,
            read=numbers.get("left", total - cached),
            prompt_ms=None if took_s is None else took_s * 1000,
            shared=numbers.get("matched"),
            restored=cached or None,
        )
        return (turn,)


_HANDLERS: dict[str, Callable[[Ollama, str], tuple[LogEvent, ...]]] = {
    "Prompt processing progress": Ollama._progress,
    "cache hit": Ollama._cache,
    "cache miss": Ollama._cache,
    "loading cache slot": Ollama._slot,
}


def _trouble(says: str, line: str) -> tuple[LogEvent, ...]:
    if says == "truncating input prompt":
        return (Truncated(whole(line, "limit="), whole(line, "prompt="), whole(line, "new=")),)
    if says.startswith("failed to restore cache"):
        return (NotStored(says), Evicted())
    return NOTHING


def _loading(says: str, line: str) -> tuple[LogEvent, ...]:
    if " started in " in says and ("runner" in says or "llama-server" in says):
        return (Loaded(decimal(says, "started in ")),)
    if says.startswith("vram-based default context"):
        context_tokens = whole(line.replace('"', ""), "default_num_ctx=")
        vram = re.search(r'total_vram="?([\d.]{1,10} \w{1,3})', line)
        found: tuple[LogEvent, ...] = (Fact("vram", vram[1]),) if vram else ()
        return (*found, Fact("context_tokens", str(context_tokens))) if context_tokens else found
    if says == "server config":
        names = {"OLLAMA_CONTEXT_LENGTH": "context_tokens", "OLLAMA_NUM_PARALLEL": "slots"}
        return tuple(Fact(names[name], value) for name, value in _CONFIG.findall(line) if value != "0")
    return NOTHING


def _seconds(line: str) -> float | None:
    at = line.find("time=")
    try:
        return datetime.fromisoformat(line[at + 5 : line.find(" ", at)]).timestamp() if at >= 0 else None
    except (ValueError, OverflowError, OSError):
        return None
