"""What all log formats have in common: the port of a parser, and numbers in text."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Protocol

from headstart.blame.logs.events import LogEvent

NOTHING: tuple[LogEvent, ...] = ()
"""A line of this format that says nothing of interest."""


class Parser(Protocol):
    """Reads one format, a line at a time, in memory that does not grow with the log."""

    name: str
    """Of the server, as `--format` takes it."""
    passed_over: tuple[str, ...] = ()
    """Lines with one of these in them are of this format and say nothing of interest."""
    passed_over_like: re.Pattern[str] | None = None
    """The same of lines in which this is found."""

    def feed(self, line: str) -> Iterable[LogEvent] | None:
        """What a line says; None where it is not of this format. Never raises."""
        ...

    def finish(self) -> Iterable[LogEvent]:
        """What was begun when the log ended."""
        ...


_WHOLE = re.compile(r" *(-?\d{1,18})(?!\d)")
_DECIMAL = re.compile(r" *(-?\d{1,18}(?:\.\d{1,18})?)")


def whole(text: str, before: str) -> int | None:
    """The whole number that follows `before`; None where there is none."""
    at = text.find(before)
    found = _WHOLE.match(text, at + len(before)) if at >= 0 else None
    return int(found[1]) if found else None


def decimal(text: str, before: str) -> float | None:
    """The number that follows `before`; None where there is none."""
    at = text.find(before)
    found = _DECIMAL.match(text, at + len(before)) if at >= 0 else None
    return float(found[1]) if found else None
