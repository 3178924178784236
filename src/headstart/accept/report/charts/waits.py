"""Time to the first token, cold and warm, every sample shown, on an axis of equal ratios."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import isfinite

from markupsafe import Markup

from headstart.accept.report.charts.scale import Log, decades
from headstart.accept.report.charts.svg import dot, line, picture, text, titled
from headstart.accept.report.units import middle, seconds, spread

WIDTH = 940
_LEFT = 150.0
_RIGHT = 660.0
_ROW = 25.0
_LEAST_S = 0.0001


@dataclass(frozen=True)
class Wait:
    """A row: samples of one tier in seconds. `kind`: a class of page.css, "cold", "warm" or "off"."""

    tier: str
    label: str
    kind: str
    samples: Sequence[float]


def waits(rows: Sequence[Wait]) -> Markup:
    """A row for each; nothing at all where no row has a sample. What is no finite number is no sample."""
    rows = [replace(row, samples=[sample for sample in row.samples if isfinite(sample)]) for row in rows]
    samples = [max(sample, _LEAST_S) for row in rows for sample in row.samples]
    if not samples:
        return Markup("")
    marks = decades(min(samples), max(samples))
    scale = Log(marks[0], marks[-1], _LEFT, _RIGHT)
    drawn: list[Markup] = []
    y = 8.0
    for at, row in enumerate(rows):
        first = at == 0 or rows[at - 1].tier != row.tier
        if first and at:
            y += 8
            drawn.append(line(0, y - 4, WIDTH, y - 4, "grid"))
        drawn.append(_row(row, y + _ROW / 2, scale, name=first))
        y += _ROW
    grid = [line(scale.at(mark), 4, scale.at(mark), y + 4, "grid") for mark in marks]
    names = [text(scale.at(mark), y + 20, _mark(mark), "muted", "middle") for mark in marks]
    says = "Time to the first token: " + "; ".join(
        f"{row.tier} {row.label} {spread(row.samples)}" for row in rows if row.samples
    )
    return picture(WIDTH, y + 28, says, [*grid, *drawn, *names])


def _row(row: Wait, y: float, scale: Log, *, name: bool) -> Markup:
    parts = [text(0, y + 4, row.tier, "strong")] if name else []
    parts.append(text(_LEFT - 12, y + 4, row.label, "label", "end"))
    parts.append(text(_RIGHT + 18, y + 4, spread(row.samples) if row.samples else "no sample", "label"))
    if row.samples:
        places = [scale.at(max(sample, _LEAST_S)) for sample in row.samples]
        centre = scale.at(max(middle(row.samples) or _LEAST_S, _LEAST_S))
        parts.append(line(min(places), y, max(places), y, f"range {row.kind}"))
        parts += [dot(place, y, 3.5, f"sample {row.kind}") for place in places]
        parts.append(line(centre, y - 8, centre, y + 8, f"median {row.kind}"))
    return titled(f"{row.tier}, {row.label}: {spread(row.samples)}", *parts)


def _mark(value: float) -> str:
    return seconds(value) if value < 1 else f"{value:,.0f} s"
