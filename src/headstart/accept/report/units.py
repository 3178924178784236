"""Numbers as a person reads them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from statistics import median
from typing import Final

from headstart.accept.report.plain import plain
from headstart.accept.verdict import Figure

NOTHING: Final = "–"


def seconds(value: float | None) -> str:
    """A duration with a unit that fits: "0.4 ms", "84 ms", "12.4 s", "3 min 20 s", "2 h 05 min"."""
    if value is None or not math.isfinite(value):
        return NOTHING
    if value < 0:
        return "-" + seconds(-value)
    if value < 0.9995:
        ms = value * 1000
        return f"{ms:.0f} ms" if ms >= 9.95 or ms == 0 else f"{ms:.1f} ms"
    if value < 99.95:
        return f"{value:.2f} s" if value < 9.995 else f"{value:.1f} s"
    whole = round(value)
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


def number(value: float | None) -> str:
    """Whole numbers with thousands marked; others with three figures that count."""
    if value is None or not math.isfinite(value):
        return NOTHING
    if float(value).is_integer() and abs(value) < 1e15:
        return f"{int(value):,}"
    return f"{value:,.1f}" if abs(value) >= 100 else f"{value:.3g}"


def memory(value: float | None) -> str:
    """Bytes in the largest 1024-based unit that leaves at least 1."""
    if value is None or not math.isfinite(value):
        return NOTHING
    for unit in ("B", "KB", "MB", "GB"):
        if abs(value) < 1024:
            return f"{value:.0f} B" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} TB"


def counted(n: int, one: str, many: str | None = None) -> str:
    """ "1 check", "2 checks"."""
    return f"{n:,} {one if n == 1 else many or one + 's'}"


def moment(unix_s: float) -> str:
    """A moment in UTC, to the minute; "unknown" for what is none."""
    try:
        return datetime.fromtimestamp(unix_s, UTC).strftime("%Y-%m-%d %H:%M UTC")
    except (ValueError, OverflowError, OSError):
        return "unknown"


def middle(samples: Sequence[float]) -> float | None:
    """The median; None of nothing."""
    return median(samples) if samples else None


def spread(samples: Sequence[float]) -> str:
    """ "12.4 s (11.9 s to 13.0 s, 3 samples)"."""
    if not samples:
        return NOTHING
    text = seconds(median(samples))
    if len(samples) == 1:
        return f"{text} (1 sample)"
    return f"{text} ({seconds(min(samples))} to {seconds(max(samples))}, {len(samples)} samples)"


def figure(name: str, value: Figure) -> tuple[str, str]:
    """A verdict's figure as (label, text): the unit that ends the name is put behind the number."""
    label, show = _unit(name)
    if value is None:
        return label, "not known"
    if isinstance(value, bool):
        return label, "yes" if value else "no"
    return label, plain(value) if isinstance(value, str) else show(value)


def _unit(name: str) -> tuple[str, Callable[[float], str]]:
    for ending, show in _UNITS.items():
        if name.endswith(ending) and len(name) > len(ending):
            return plain(name[: -len(ending)]).replace("_", " "), show
    return plain(name).replace("_", " "), number


def _tokens(value: float) -> str:
    return f"{number(value)} {'token' if value == 1 else 'tokens'}"


_UNITS: Final[Mapping[str, Callable[[float], str]]] = {
    "_s_per_turn": lambda value: f"{seconds(value)} a turn",
    "_s_per_token": lambda value: f"{seconds(value)} a token",
    "_tokens_per_s": lambda value: f"{number(value)} tokens/s",
    "_per_s": lambda value: f"{number(value)}/s",
    "_tokens": _tokens,
    "_bytes": memory,
    "_ms": lambda value: seconds(value / 1000),
    "_s": seconds,
    "_percent": lambda value: f"{number(value)} %",
}
