"""The gap sweep: where prompts part, and how many tokens before that were not restored."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup

from headstart.accept.report.charts.scale import Linear, ticks
from headstart.accept.report.charts.svg import cross, dot, line, picture, text, titled
from headstart.accept.report.results import SweepEntry
from headstart.accept.report.units import counted, number, seconds

WIDTH = 940
HEIGHT = 330
_TOP = 34.0
_BOTTOM = 270.0


def sweep(points: Sequence[SweepEntry], allowance: int | None) -> Markup:
    """Two panels: restored against divergence beside a perfect cache's diagonal, and the gap alone.

    `allowance`: the largest gap that is no fault, drawn as a line; None: not known. Nothing without points.
    """
    if not points:
        return Markup("")
    far = max(point.divergence_high for point in points)
    gaps = [point.gap for point in points if point.gap is not None]
    says = f"Gap sweep over {counted(len(points), 'edit')}: largest gap " + (
        f"{counted(max(gaps), 'token')}" if gaps else "not known"
    )
    return picture(
        WIDTH, HEIGHT, says, [*_restored(points, far), *_gaps(points, far, max(gaps, default=0), allowance)]
    )


def _restored(points: Sequence[SweepEntry], far: int) -> list[Markup]:
    x = Linear(0, far, 62, 420)
    y = Linear(0, far, _BOTTOM, _TOP)
    drawn = _frame("tokens restored", x, y, ticks(far, 5), ticks(far, 5))
    drawn.append(line(x.at(0), y.at(0), x.at(far), y.at(far), "perfect"))
    drawn.append(text(x.at(far * 0.5) - 8, y.at(far * 0.5) - 8, "a perfect cache", "muted", "end"))
    for point in points:
        at = x.at(point.divergence_low)
        if point.restored is None:
            drawn.append(titled(_said(point), cross(at, y.at(0), 3.5, "mark-unknown")))
            continue
        up = y.at(point.restored)
        span = line(at, up, x.at(point.divergence_high), up, "span")
        drop = line(at, y.at(point.divergence_low), at, up, "gap")
        drawn.append(titled(_said(point), drop, span, dot(at, up, 3, "point")))
    return drawn


def _gaps(points: Sequence[SweepEntry], far: int, largest: int, allowance: int | None) -> list[Markup]:
    high = max(largest, allowance or 0, 4) * 1.08
    x = Linear(0, far, 560, 918)
    y = Linear(0, high, _BOTTOM, _TOP)
    drawn = _frame("gap: tokens read that a perfect cache keeps", x, y, ticks(far, 5), ticks(high, 5))
    for point in points:
        at = x.at(point.divergence_low)
        if point.gap is None:
            drawn.append(titled(_said(point), cross(at, y.at(0), 3.5, "mark-unknown")))
            continue
        stem = line(at, y.at(0), at, y.at(point.gap), "gap")
        drawn.append(titled(_said(point), stem, dot(at, y.at(point.gap), 3, "point")))
    if allowance is not None:
        drawn.append(line(x.at(0), y.at(allowance), x.at(far), y.at(allowance), "allowance"))
        drawn.append(text(x.end, y.at(allowance) - 6, f"allowed: {number(allowance)}", "muted halo", "end"))
    return drawn


def _frame(
    title: str, x: Linear, y: Linear, across: Sequence[float], upward: Sequence[float]
) -> list[Markup]:
    drawn = [text(x.start - 50, 14, title, "strong")]
    for tick in upward:
        drawn.append(line(x.start, y.at(tick), x.end, y.at(tick), "grid"))
        drawn.append(text(x.start - 8, y.at(tick) + 4, number(tick), "muted", "end"))
    for tick in across:
        drawn.append(line(x.at(tick), _BOTTOM, x.at(tick), _BOTTOM + 5, "axis"))
        drawn.append(text(x.at(tick), _BOTTOM + 20, number(tick), "muted", "middle"))
    drawn.append(line(x.start, _BOTTOM, x.end, _BOTTOM, "axis"))
    drawn.append(
        text((x.start + x.end) / 2, _BOTTOM + 42, "where the prompts part, tokens", "label", "middle")
    )
    return drawn


def _said(point: SweepEntry) -> str:
    where = number(point.divergence_low)
    if point.divergence_high != point.divergence_low:
        where += f" to {number(point.divergence_high)}"
    restored = "restored: not stated" if point.restored is None else f"restored {number(point.restored)}"
    gap = "" if point.gap is None else f", gap {number(point.gap)}"
    return f"parts at {where}, {restored}{gap}, waited {seconds(point.waited_s)}"
