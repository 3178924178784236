"""What `headstart accept` prints: progress on stderr, the table on stdout."""

from __future__ import annotations

import os
import shutil
import sys
import textwrap
from collections.abc import Sequence
from typing import TextIO

from headstart.accept.gates import Gate
from headstart.accept.report.results import Results, VerdictEntry
from headstart.accept.verdict import Outcome, Verdict
from headstart.cli.terminal import BOLD, DIM, GREEN, Terminal, wants_colour

RED, YELLOW = "31", "33"
COLOURS = {Outcome.PASS: GREEN, Outcome.FAIL: RED, Outcome.INCONCLUSIVE: YELLOW, Outcome.UNSUPPORTED: DIM}
_LEAST_WIDTH = 60


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
        """Every verdict in one line or more, and a count."""
        colour = wants_colour(self._out, os.environ)
        width = max(_LEAST_WIDTH, shutil.get_terminal_size((110, 24)).columns)
        for row in rows(results.verdicts, width):
            print(_painted(row, colour), file=self._out)
        print(summary(results), file=self._out)


def rows(verdicts: Sequence[VerdictEntry], width: int) -> list[tuple[str, ...]]:
    """(gate, where, outcome, reason) with reasons wrapped to `width`; continuation rows have empty
    first cells. Cells are padded."""
    names = [v.title for v in verdicts]
    places = [" ".join(word for word in (v.tier, v.part) if word) for v in verdicts]
    first, second, third = (
        max(map(len, cells), default=0) for cells in (names, places, [o.value for o in Outcome])
    )
    room = max(30, width - first - second - third - 6)
    found: list[tuple[str, ...]] = []
    for verdict, name, place in zip(verdicts, names, places, strict=True):
        lines = textwrap.wrap(verdict.reason, room) or [""]
        found.append((name.ljust(first), place.ljust(second), verdict.outcome.value.ljust(third), lines[0]))
        found += [(" " * first, " " * second, " " * third, line) for line in lines[1:]]
    return found


def _painted(row: tuple[str, ...], colour: bool) -> str:
    cells = list(row)
    word = cells[2].strip()
    if colour and word:
        cells[2] = f"\x1b[{BOLD};{COLOURS[Outcome(word)]}m{cells[2]}\x1b[0m"
    return "  ".join(cells).rstrip()


def summary(results: Results) -> str:
    """One line: how many of each."""
    counts = {outcome: sum(v.outcome is outcome for v in results.verdicts) for outcome in Outcome}
    said = ", ".join(f"{count} {outcome.value}" for outcome, count in counts.items() if count)
    ended = "" if results.complete else "; the run was not complete"
    return f"{said or 'no verdicts'} in {results.took_s:.0f} s{ended}"
