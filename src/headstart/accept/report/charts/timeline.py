"""Every exchange of a run along the time, a lane a gate."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup

from headstart.accept.exchange import FailureKind
from headstart.accept.report.charts.scale import Linear, time_ticks
from headstart.accept.report.charts.svg import box, cross, line, picture, text, titled
from headstart.accept.report.plain import clipped, plain
from headstart.accept.report.results import CaseEntry
from headstart.accept.report.units import counted, seconds

WIDTH = 940
_LEFT = 150.0
_RIGHT = 918.0
_THIN = 7.0
_LANE_GAP = 9.0
_MOST_TRACKS = 8
_LEAST = 1.2


def timeline(cases: Sequence[CaseEntry], titles: dict[str, str], took_s: float) -> Markup:
    """`titles`: of the gates, in the order of the lanes. Nothing without exchanges."""
    if not cases:
        return Markup("")
    end = max([took_s, *(case.at_s + case.total_s for case in cases)])
    scale = Linear(0, end or 1, _LEFT, _RIGHT)
    lanes = list(dict.fromkeys([*titles, *(case.gate for case in cases)]))
    drawn: list[Markup] = []
    y = 8.0
    for lane in lanes:
        own = [case for case in cases if case.gate == lane]
        if not own:
            continue
        tracks = _tracks(own)
        height = (max(tracks) + 1) * (_THIN + 2)
        drawn.append(text(0, y + height / 2 + 3, clipped(plain(titles.get(lane, lane)), 22), "label"))
        drawn += [_exchange(case, y + at * (_THIN + 2), scale) for case, at in zip(own, tracks, strict=True)]
        y += height + _LANE_GAP
        drawn.append(line(_LEFT, y - _LANE_GAP / 2, _RIGHT, y - _LANE_GAP / 2, "grid"))
    marks = time_ticks(end, 8)
    grid = [line(scale.at(mark), 2, scale.at(mark), y, "grid") for mark in marks]
    names = [text(scale.at(mark), y + 15, _mark(mark), "muted", "middle") for mark in marks]
    says = f"Timeline of {counted(len(cases), 'exchange')} in {seconds(end)}, as listed under Exchanges"
    return picture(WIDTH, y + 24, says, [*grid, *drawn, *names])


def _tracks(cases: Sequence[CaseEntry]) -> list[int]:
    """For each exchange the first track that is free when it begins; the last one takes what is left."""
    free: list[float] = []
    chosen = []
    for case in cases:
        track = next((at for at, until in enumerate(free) if until <= case.at_s + 1e-6), len(free))
        track = min(track, _MOST_TRACKS - 1)
        if track == len(free):
            free.append(0.0)
        free[track] = max(free[track], case.at_s + case.total_s)
        chosen.append(track)
    return chosen


def _exchange(case: CaseEntry, y: float, scale: Linear) -> Markup:
    start, end = scale.at(case.at_s), scale.at(case.at_s + case.total_s)
    length = max(end - start, _LEAST)
    if case.failure is not None and case.failure.startswith(FailureKind.CANCELLED):
        parts = [box(start, y, length, _THIN, "stopped")]
    elif case.failure is not None:
        parts = [box(start, y, length, _THIN, "failed"), cross(start, y + _THIN / 2, 3.2, "mark-failed")]
    elif case.first_token_s is None:
        parts = [box(start, y, length, _THIN, "whole")]
    else:
        first = scale.at(case.at_s + case.first_token_s)
        parts = [
            box(start, y, max(first - start, _LEAST), _THIN, "wait"),
            box(max(first, start + _LEAST), y, end - max(first, start + _LEAST), _THIN, "write"),
        ]
    return titled(_said(case), *parts)


def _mark(value: float) -> str:
    if value < 60 or value % 60:
        return seconds(value) if value else "0"
    return f"{value / 60:.0f} min" if value < 3600 else f"{value // 3600:.0f} h {value % 3600 / 60:02.0f}"


def _said(case: CaseEntry) -> str:
    words = [case.id, case.label or case.gate, *([case.tier] if case.tier else [])]
    if case.failure is not None:
        return ", ".join([*words, clipped(case.failure, 160)])
    if case.first_token_s is not None:
        words.append(f"first token after {seconds(case.first_token_s)}")
    return ", ".join([*words, f"{seconds(case.total_s)} in all"])
