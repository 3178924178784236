"""Bars of prompt tokens: what was reused and what was read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from headstart.accept.exchange import FailureKind
from headstart.accept.report.charts.scale import Linear, ticks
from headstart.accept.report.charts.svg import box, cross, line, picture, text, titled
from headstart.accept.report.plain import clipped, plain
from headstart.accept.report.units import counted, number

WIDTH = 940
_LEFT = 236.0
_RIGHT = 712.0
_ROW = 19.0
_HEADING = 26.0
_THICK = 12.0


@dataclass(frozen=True)
class Bar:
    """One exchange. `group`: its gate, written once above neighbours that share it. `prompt`, `reused`:
    tokens, None where the server does not tell. `failure`: why no reply came."""

    group: str
    label: str
    prompt: int | None
    reused: int | None
    failure: str | None = None


def bars(rows: Sequence[Bar], tier: str) -> Markup:
    """One bar an exchange, in their order; all to one scale."""
    most = max((row.prompt or 0 for row in rows), default=0)
    scale = Linear(0, most or 1, _LEFT, _RIGHT)
    drawn: list[Markup] = []
    y = 6.0
    for at, row in enumerate(rows):
        if at == 0 or rows[at - 1].group != row.group:
            drawn.append(text(0, y + 16, clipped(row.group, 60), "strong"))
            y += _HEADING
        drawn.append(_bar(row, y, scale))
        y += _ROW
    grid = [line(scale.at(tick), 4, scale.at(tick), y + 2, "grid") for tick in ticks(most, 5)]
    names = [text(scale.at(tick), y + 16, number(tick), "muted", "middle") for tick in ticks(most, 5)]
    says = (
        f"Tier {tier}: tokens reused and read in {counted(len(rows), 'exchange')}, as listed under Exchanges"
    )
    return picture(WIDTH, y + 24, says, [*grid, *drawn, *names])


def _bar(row: Bar, y: float, scale: Linear) -> Markup:
    label = text(_LEFT - 10, y + 10, clipped(plain(row.label), 32), "label", "end")
    said = text(_RIGHT + 12, y + 10, _said(row), "label")
    tooltip = f"{row.group}, {row.label}: {row.failure or _said(row)}"
    return titled(tooltip, label, *_filled(row, y, scale), said)


def _filled(row: Bar, y: float, scale: Linear) -> list[Markup]:
    if row.failure is not None and row.failure.startswith(FailureKind.CANCELLED):
        return []
    if row.failure is not None:
        return [cross(_LEFT + 7, y + _THICK / 2, 4, "mark-failed")]
    if row.prompt is None:
        return []
    end = scale.at(row.prompt)
    if row.reused is None:
        return [box(_LEFT, y, end - _LEFT, _THICK, "unknown")]
    cut = scale.at(min(row.reused, row.prompt))
    read = max(end - cut, 1.5) if row.prompt > row.reused else 0.0
    return [box(_LEFT, y, cut - _LEFT, _THICK, "reused"), box(end - read, y, read, _THICK, "read")]


def _said(row: Bar) -> str:
    if row.failure is not None:
        cancelled = row.failure.startswith(FailureKind.CANCELLED)
        return "cancelled on purpose" if cancelled else "no whole reply"
    if row.prompt is None:
        return "not stated"
    if row.reused is None:
        return f"{number(row.prompt)} sent, reuse not stated"
    return f"{number(row.reused)} reused, {number(max(0, row.prompt - row.reused))} read"
