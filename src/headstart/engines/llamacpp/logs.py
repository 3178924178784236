"""What llama.cpp logs: kept for a moment, so that a failure's reason can be shown; never printed."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

import llama_cpp

__all__ = ["LogLines", "capture_logs"]

WARN, ERROR, CONTINUED = 3, 4, 5
KEPT_LINES = 50_000


class LogLines:
    """Lines that llama.cpp logged while a capture was open, with their levels (ggml_log_level)."""

    def __init__(self) -> None:
        self.lines: list[tuple[int, str]] = []

    def reason(self) -> str:
        """The line that says best why something failed: the first error, else the last warning."""
        errors = [text for level, text in self.lines if level == ERROR]
        warnings = [text for level, text in self.lines if level == WARN]
        return (errors[:1] or warnings[-1:] or ["llama.cpp gave no reason"])[0]

    def containing(self, words: str) -> list[str]:
        return [text for _, text in self.lines if words in text]


class _Sink:
    """Receives every line. llama.cpp has one log callback a process, so there is one sink a process."""

    def __init__(self) -> None:
        self._open: list[LogLines] = []
        self.callback = llama_cpp.llama_log_callback(self._receive)
        llama_cpp.llama_log_set(self.callback, ctypes.c_void_p(0))

    def _receive(self, level: int, text: bytes, _: object) -> None:
        if not self._open:
            return
        line = text.decode("utf-8", "replace")
        for capture in self._open:
            if level == CONTINUED and capture.lines:
                last_level, last = capture.lines[-1]
                capture.lines[-1] = (last_level, last + line.rstrip("\n"))
            elif len(capture.lines) < KEPT_LINES:
                capture.lines.append((level, line.rstrip("\n")))

    def opened(self) -> list[LogLines]:
        return self._open


@cache
def _sink() -> _Sink:
    """The process's sink. Kept alive for ever: llama.cpp holds a bare pointer to its callback."""
    return _Sink()


@contextmanager
def capture_logs() -> Iterator[LogLines]:
    """Collects what llama.cpp logs inside the `with` block."""
    lines = LogLines()
    opened = _sink().opened()
    opened.append(lines)
    try:
        yield lines
    finally:
        opened.remove(lines)
