"""What a command tells the person who runs it: progress and facts, on stderr.

Colour only on a terminal, and never where NO_COLOR is set (no-color.org).
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import TextIO

BOLD = "1"
DIM = "2"
GREEN = "32"

WORTH_PROGRESS_BYTES = 1 << 30


def wants_colour(stream: TextIO, environment: Mapping[str, str]) -> bool:
    """Whether `stream` shows colour and its reader wants it."""
    if environment.get("NO_COLOR") or environment.get("TERM") == "dumb":
        return False
    return stream.isatty()


class Terminal:
    """Lines for a person. `stream` is stderr unless told otherwise."""

    def __init__(self, stream: TextIO | None = None, environment: Mapping[str, str] | None = None) -> None:
        self._stream = sys.stderr if stream is None else stream
        self._colour = wants_colour(self._stream, os.environ if environment is None else environment)

    def paint(self, text: str, code: str) -> str:
        """`text` in a colour, where colour is shown."""
        return f"\x1b[{code}m{text}\x1b[0m" if self._colour else text

    def step(self, text: str) -> None:
        """One line about what is going on now."""
        self._line(self.paint(text, DIM))

    def progress(self, done_bytes: int, total_bytes: int) -> None:
        """How much of a large file is read; nothing for files that take no time."""
        if total_bytes >= WORTH_PROGRESS_BYTES:
            self.step(f"read {format_bytes(done_bytes)} of {format_bytes(total_bytes)}")

    def fact(self, label: str, text: str) -> None:
        """One line of the summary: a label and what is to be known."""
        self._line(f"{self.paint(f'{label:<8}', BOLD)}{text}")

    def ready(self, text: str) -> None:
        """The line that says that work can begin."""
        self._line(self.paint(text, f"{BOLD};{GREEN}"))

    def _line(self, text: str) -> None:
        print(text, file=self._stream, flush=True)


def format_bytes(n: int) -> str:
    """`n` bytes in the largest 1024-based unit that leaves at least 1: "4.0 GB"."""
    value = float(n)
    for unit in ("B", "KB", "MB", "GB"):
        if value < 1024:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} TB"
