"""Ollama: the lines of its own runner for MLX and of llama.cpp's server inside it.

`cache hit` is written for any reuse, be it 68 tokens of 633: `matched` says where prompts part, `cached`
where the runner could go on, and `left` what it reads.
"""

from __future__ import annotations

import re
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
_TIME = re.compile(r"time=(\d{4}-\d\d-\d\dT[\d:.]{8,20}(?:Z|[+-]\d\d:\d\d)?)")
_NUMBER = re.compile(r" (total|matched|cached|left)=(\d{1,18})(?!\d)")
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
        self._turn: Turn | None = None
        self._since: float | None = None
        self._announced = False

    def feed(self, line: str) -> tuple[LogEvent, ...] | None:
        at = line.find(" msg=")
        if at > 0 and "level=" in line:
            quoted = line[at + 5 : at + 6] == '"'
            begin = at + 6 if quoted else at + 5
            end = line.find('"' if quoted else " ", begin)
            return self._message(line[begin : end if end > 0 else None], line)
        if line.startswith("[GIN]"):
            return NOTHING
        events = self._runner.feed(line)
        if events and isinstance(events[0], Started):
            announced, self._announced = self._announced, False
            return NOTHING if announced else events
        return events

    def finish(self) -> tuple[LogEvent, ...]:
        return (*self._ended(), *self._runner.finish())

    def _message(self, says: str, line: str) -> tuple[LogEvent, ...]:
        if says == "Prompt processing progress":
            done, _, total = line.rpartition(" processed=")[2].partition(" total=")
            if done == total.rstrip():
                self._progress(line)
            return NOTHING
        if says in ("cache hit", "cache miss"):
            return self._cache(line)
        if says == "loading cache slot":
            return self._slot(line)
        if says.startswith(("starting runner", "starting llama server", "starting llama-server")):
            self._announced = True
            context = _CONTEXT.search(line)
            return (Started(NAME, int(context[1]) if context else None),)
        return _trouble(says, line) or _loading(says, line)

    def _cache(self, line: str) -> tuple[LogEvent, ...]:
        ended = self._ended()
        numbers = {name: int(digits) for name, digits in _NUMBER.findall(line)}
        total, cached = numbers.get("total"), numbers.get("cached")
        if total is None or cached is None:
            return ended
        matched = numbers.get("matched")
        self._turn = Turn(
            NAME,
            prompt_tokens=total,
            cached=cached,
            read=numbers.get("left", total - cached),
            shared=matched,
            restored=cached or None,
        )
        self._since = _seconds(line)
        return (*ended, *((Restored(cached, matched),) if cached else ()))

    def _progress(self, line: str) -> None:
        """Time to read, once the last token is read."""
        now = _seconds(line)
        if self._turn and now is not None and self._since is not None and now >= self._since:
            self._turn = self._turn._replace(prompt_ms=(now - self._since) * 1000)

    def _slot(self, line: str) -> tuple[LogEvent, ...]:
        prompt, used = whole(line, "prompt="), whole(line, "used=")
        if prompt is None or used is None:
            return NOTHING
        return (Turn(NAME, whole(line, " id="), prompt_tokens=prompt, cached=used, read=prompt - used),)

    def _ended(self) -> tuple[LogEvent, ...]:
        turn, self._turn = self._turn, None
        return (turn,) if turn else ()


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
    found = _TIME.match(line, at) if at >= 0 else None
    try:
        return datetime.fromisoformat(found[1]).timestamp() if found else None
    except ValueError:
        return None
