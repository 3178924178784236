"""The table of verdicts for a terminal: aligned, in words first, in colour where colour is wanted."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TextIO

from headstart.accept.report.plain import clipped, columns, padded, plain, wrapped
from headstart.accept.report.results import Results, VerdictEntry
from headstart.accept.report.summary import by_gate, headline, subject, tally
from headstart.accept.report.units import counted, seconds
from headstart.accept.verdict import Outcome

_CODES: Final[Mapping[str, str]] = {
    Outcome.PASS: "32",
    Outcome.FAIL: "1;31",
    Outcome.INCONCLUSIVE: "33",
    Outcome.UNSUPPORTED: "2",
    "heading": "1",
    "aside": "2",
}
_OUTCOME_WIDTH: Final = max(len(outcome) for outcome in Outcome)
_LEAST_REASON: Final = 32
_MOST_GATE: Final = 20
_MOST_PART: Final = 22
_MOST_OF_A_REASON: Final = 600
_WIDTHS_OF_A_LINE: Final = (15, 4, 14)
_GAP: Final = "  "


@dataclass(frozen=True)
class Style:
    """`width`: columns of the terminal. `colour`: whether escape sequences may be written."""

    width: int = 100
    colour: bool = False

    def paint(self, text: str, kind: str) -> str:
        """`text` in the colour of an outcome, or of a "heading" or an "aside"."""
        return f"\x1b[{_CODES[kind]}m{text}\x1b[0m" if self.colour and text else text


def style_for(stream: TextIO, environment: Mapping[str, str]) -> Style:
    """What suits `stream`: colour only on a terminal and where NO_COLOR is not set; as wide as COLUMNS or
    the terminal says, 100 where neither does."""
    wanted = not environment.get("NO_COLOR") and environment.get("TERM") != "dumb"
    given = environment.get("COLUMNS", "")
    if given.isdecimal() and int(given) > 0:
        width = int(given)
    else:
        width = shutil.get_terminal_size((100, 24)).columns if stream.isatty() else 100
    return Style(width=max(20, width), colour=wanted and stream.isatty())


def table(results: Results, style: Style | None = None) -> str:
    """Every verdict, then the run in a few words. Ends with a line break."""
    style = style or Style()
    shape = _Shape.of(results.verdicts, style)
    lines = [style.paint(shape.heading, "heading")] if results.verdicts and not shape.stacked else []
    for group in by_gate(results):
        for at, verdict in enumerate(group.verdicts):
            lines += shape.rows(verdict, name=at == 0)
    return "\n".join([*lines, *_closing(results, style, bool(lines))]) + "\n"


def line(verdict: VerdictEntry, style: Style | None = None) -> str:
    """One verdict as it comes in while the gates run. The columns are those of any other verdict's line."""
    return "\n".join(_Shape.with_widths(style or Style(), *_WIDTHS_OF_A_LINE).rows(verdict, name=True))


@dataclass(frozen=True)
class _Shape:
    """Widths of the columns; `stacked` where the terminal is too narrow to set them side by side."""

    style: Style
    gate: int
    tier: int
    part: int
    reason: int
    stacked: bool

    @classmethod
    def of(cls, verdicts: Sequence[VerdictEntry], style: Style) -> _Shape:
        gate = min(_MOST_GATE, max((columns(plain(v.title)) for v in verdicts), default=0))
        tier = min(_MOST_PART, max((columns(plain(v.tier or "")) for v in verdicts), default=0))
        part = min(_MOST_PART, max((columns(plain(v.part)) for v in verdicts), default=0))
        return cls.with_widths(style, max(gate, 4), tier and max(tier, 4), part)

    @classmethod
    def with_widths(cls, style: Style, gate: int, tier: int, part: int) -> _Shape:
        """The reason takes what the others leave of the terminal's width."""
        used = [width for width in (_OUTCOME_WIDTH, gate, tier, part) if width]
        reason = style.width - sum(used) - len(_GAP) * len(used)
        stacked = reason < _LEAST_REASON
        return cls(style, gate, tier, part, max(style.width - 4, 10) if stacked else reason, stacked)

    @property
    def heading(self) -> str:
        return self._joined(
            ["", padded("gate", self.gate), padded("tier", self.tier), " " * self.part, "reason"]
        )

    def rows(self, verdict: VerdictEntry, *, name: bool) -> list[str]:
        """The lines of one verdict. `name`: the gate's name is written too."""
        reason = wrapped(clipped(plain(verdict.reason), _MOST_OF_A_REASON), self.reason)
        outcome = padded(verdict.outcome, _OUTCOME_WIDTH)
        if self.stacked:
            title = " ".join(plain(word) for word in (verdict.title, verdict.tier, verdict.part) if word)
            room = self.style.width - len(verdict.outcome) - 1
            head = f"{self.style.paint(verdict.outcome, verdict.outcome)} {clipped(title, room)}"
            return [head, *(f"    {text}" for text in reason)]
        parts = [
            padded(clipped(plain(verdict.title), self.gate) if name else "", self.gate),
            padded(clipped(plain(verdict.tier or ""), self.tier), self.tier),
            padded(clipped(plain(verdict.part), self.part), self.part),
        ]
        first = self._joined([outcome, *parts, reason[0]])
        rest = self._joined([" " * _OUTCOME_WIDTH, *(" " * columns(part) for part in parts), ""])
        painted = self.style.paint(outcome, verdict.outcome) + first[_OUTCOME_WIDTH:]
        return [painted.rstrip(), *(rest + text for text in reason[1:])]

    def _joined(self, cells: Sequence[str]) -> str:
        outcome, gate, tier, part, reason = cells
        shown = [padded(outcome, _OUTCOME_WIDTH), gate]
        shown += [tier] if self.tier else []
        shown += [part] if self.part else []
        return _GAP.join([*shown, reason])


def _closing(results: Results, style: Style, below: bool) -> list[str]:
    failed = any(verdict.outcome is Outcome.FAIL for verdict in results.verdicts)
    passed = any(verdict.outcome is Outcome.PASS for verdict in results.verdicts)
    kind = Outcome.FAIL if failed else Outcome.PASS if passed else Outcome.INCONCLUSIVE
    model = f", {plain(results.target.model)}" if results.target.model else ""
    said = tally(results)
    closing = [
        *([""] if below else []),
        style.paint(headline(results), kind) + (f": {said}" if said else ""),
        style.paint(
            f"{plain(subject(results))}{model}, {counted(len(results.cases), 'exchange')} "
            f"in {seconds(results.took_s)}",
            "aside",
        ),
    ]
    waiting = [plain(group.gate.title) for group in by_gate(results) if not group.verdicts]
    if not results.complete:
        closing.append("Stopped before its end" + (f"; not reached: {', '.join(waiting)}" if waiting else ""))
    return closing
