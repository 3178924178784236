"""A comparison as text for a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from headstart.accept.report.plain import clipped, columns, padded, plain
from headstart.accept.report.side_by_side import Change, Comparison, Pair, Row
from headstart.accept.report.summary import headline, subject, tally
from headstart.accept.report.table import Style
from headstart.accept.report.units import counted, figure, moment
from headstart.accept.verdict import Outcome

_MARKS: Final = {
    Change.SAME: "",
    Change.BETTER: "better",
    Change.WORSE: "WORSE",
    Change.MOVED: "other",
    Change.ONLY_A: "only in A",
    Change.ONLY_B: "only in B",
}
_NOTICED: Final = 0.05
_MOST_CELL: Final = 26


def compared(comparison: Comparison, style: Style | None = None) -> str:
    """Both runs, their times by tier, their verdicts, and the figures that differ. Ends with a line break."""
    style = style or Style()
    lines = _heads(comparison, style)
    for tier in (tier for tier in comparison.tiers if tier.figures):
        lines += ["", style.paint(f"{plain(tier.name)}, medians", "heading")]
        lines += _pairs(tier.figures)
    lines += ["", *_verdicts(comparison, style)]
    return "\n".join([*lines, "", _closing(comparison, style)]) + "\n"


def _heads(comparison: Comparison, style: Style) -> list[str]:
    lines = []
    for side, run in (("A", comparison.a), ("B", comparison.b)):
        model = f", {plain(run.target.model)}" if run.target.model else ""
        said = tally(run)
        lines.append(
            f"{style.paint(side, 'heading')}  {plain(subject(run))}{model}, {moment(run.started)}: "
            f"{headline(run).lower()}{f' ({said})' if said else ''}"
        )
    lines += [style.paint(f"not comparable: {plain(text)}", Outcome.FAIL) for text in comparison.objections]
    return lines + [style.paint(f"note: {plain(text)}", "aside") for text in comparison.remarks]


def _verdicts(comparison: Comparison, style: Style) -> list[str]:
    rows = [("gate", "A", "B", "")] + [
        (_name(row), row.a.outcome if row.a else "–", row.b.outcome if row.b else "–", _MARKS[row.change])
        for row in comparison.rows
    ]
    if len(rows) == 1:
        return ["No verdicts on either side."]
    widths = [max(columns(row[at]) for row in rows) for at in range(3)]
    lines = []
    for at, cells in enumerate(rows):
        name, one, other = (padded(cell, width) for cell, width in zip(cells[:3], widths, strict=True))
        if at == 0:
            lines.append(style.paint(f"{name}  {one}  {other}".rstrip(), "heading"))
            continue
        row = comparison.rows[at - 1]
        shown = [_outcome(cell, style) for cell in (one, other)]
        lines.append("  ".join([name, *shown, cells[3]]).rstrip())
        if row.a and row.b:
            lines += _pairs([pair for pair in row.figures if _differs(pair)])
    return lines


def _outcome(cell: str, style: Style) -> str:
    word = cell.rstrip()
    return (style.paint(word, word) if word in set(Outcome) else word) + cell[len(word) :]


def _name(row: Row) -> str:
    place = ", ".join(plain(word) for word in (row.tier, row.part) if word)
    return clipped(f"{plain(row.title)}{f' ({place})' if place else ''}", 44)


def _pairs(pairs: Sequence[Pair]) -> list[str]:
    cells = [(*figure(pair.name, pair.a), figure(pair.name, pair.b)[1], _ratio(pair)) for pair in pairs]
    if not cells:
        return []
    names, ones, others = (max(min(_MOST_CELL, columns(row[at])) for row in cells) for at in range(3))
    return [
        "    "
        + "  ".join(
            [
                padded(clipped(name, names), names),
                padded(clipped(one, ones), ones),
                padded(clipped(other, others), others),
                ratio,
            ]
        ).rstrip()
        for name, one, other, ratio in cells
    ]


def _ratio(pair: Pair) -> str:
    ratio = pair.ratio
    if ratio is None or ratio <= 0 or pair.a == pair.b:
        return ""
    return f"x {ratio:.2f}" if ratio >= 0.095 else f"1/{1 / ratio:.0f}"


def _differs(pair: Pair) -> bool:
    ratio = pair.ratio
    return pair.a != pair.b if ratio is None else abs(ratio - 1) > _NOTICED


def _closing(comparison: Comparison, style: Style) -> str:
    said = [
        f"{counted(len(comparison.changed(change)), 'check')} {words}"
        for change, words in (
            (Change.WORSE, "worse in B"),
            (Change.BETTER, "better in B"),
            (Change.MOVED, "other"),
            (Change.ONLY_A, "only in A"),
            (Change.ONLY_B, "only in B"),
        )
        if comparison.changed(change)
    ]
    kind = Outcome.FAIL if comparison.changed(Change.WORSE) else Outcome.PASS
    return style.paint("; ".join(said) or "Every verdict is the same on both sides", kind)
