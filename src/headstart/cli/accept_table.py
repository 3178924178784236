"""What `headstart accept` prints: progress on stderr, the table on stdout."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

from headstart.accept.gates import Gate
from headstart.accept.report.results import Results
from headstart.accept.report.table import style_for, table
from headstart.accept.verdict import Outcome, Verdict
from headstart.cli.terminal import DIM, GREEN, Terminal

RED, YELLOW = "31", "33"
COLOURS = {Outcome.PASS: GREEN, Outcome.FAIL: RED, Outcome.INCONCLUSIVE: YELLOW, Outcome.UNSUPPORTED: DIM}


class Show:
    """`quiet`: no table on stdout; progress still goes to stderr."""

    def __init__(self, *, quiet: bool, out: TextIO | None = None) -> None:
        self._out = sys.stdout if out is None else out
        self._terminal = Terminal()
        self._quiet = quiet

    def line(self, text: str) -> None:
        self._terminal.step(f"  {text}")

    def gate(self, gate: Gate, number: int, of: int) -> None:
        self._terminal.fact(f"{number}/{of}", f"{gate.title}: {gate.shows}")

    def verdict(self, gate: Gate, verdict: Verdict) -> None:
        where = " ".join(word for word in (verdict.tier, verdict.part) if word)
        word = self._terminal.paint(verdict.outcome.value, COLOURS[verdict.outcome])
        self._terminal.step(f"  {word} {where + ': ' if where else ''}{verdict.reason}")

    def table(self, results: Results) -> None:
        """Every verdict in one line or more, and what they come to."""
        print(table(results, style_for(self._out, os.environ)), end="", file=self._out)


@contextmanager
def sigterm_as_ctrl_c() -> Iterator[None]:
    """SIGTERM ends a run as Ctrl-C does: with a report, and no server of its own left behind."""

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
