"""vLLM: it logs no single request, but totals every ten seconds, and its sizes at the start."""

from __future__ import annotations

import re

from headstart.blame.logs.events import Fact, Interval, LogEvent, Started
from headstart.blame.logs.parser import NOTHING, Parser, decimal, whole

NAME = "vllm"
_LIMIT = re.compile(r"""(?:max_model_len['"]?[=:]\s?|max_seq_len=|max model len\s)(\d{1,9})""")
_CACHING = re.compile(r"""enable_prefix_caching['"]?[=:]\s?(True|False)""")
_OWN = re.compile(r"(?:INFO|WARNING|ERROR|DEBUG) \d\d-\d\d \d\d:\d\d:\d\d |\b(?:APIServer|EngineCore)")


class Vllm(Parser):
    """Parser of the log of `vllm serve`."""

    name = NAME

    def feed(self, line: str) -> tuple[LogEvent, ...] | None:
        if "Avg prompt throughput: " in line:
            return _interval(line)
        if "Setting attention block size to " in line:
            block = whole(line, "Setting attention block size to ")
            return (Fact("block_tokens", str(block)),) if block else NOTHING
        if (
            "prefix_caching" in line
            or "max_model_len" in line
            or "max_seq_len=" in line
            or "max model len" in line
        ):
            return _sizes(line)
        return NOTHING if _OWN.search(line[:200]) or "LMCache" in line else None

    def finish(self) -> tuple[LogEvent, ...]:
        return ()


def _interval(line: str) -> tuple[LogEvent, ...]:
    speed = decimal(line, "Avg prompt throughput: ")
    if speed is None:
        return NOTHING
    hit, used = decimal(line, "Prefix cache hit rate: "), decimal(line, "KV cache usage: ")
    running = whole(line, "Running: ")
    waiting = whole(line, "Waiting: ")
    return (
        Interval(
            speed,
            None if hit is None else hit / 100,
            None if used is None else used / 100,
            running,
            waiting,
        ),
    )


def _sizes(line: str) -> tuple[LogEvent, ...]:
    found: list[LogEvent] = []
    if "Initializing a V" in line or "non-default args" in line:
        found.append(Started(NAME))
    limit, caching = _LIMIT.search(line), _CACHING.search(line)
    if limit:
        found.append(Fact("context_tokens", limit[1]))
    if caching:
        found.append(Fact("prefix_caching", "on" if caching[1] == "True" else "off"))
    return tuple(found)
