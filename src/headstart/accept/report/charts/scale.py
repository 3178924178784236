"""From numbers to places on a picture, and the numbers an axis names."""

from __future__ import annotations

import math
from dataclasses import dataclass

_TIME_STEPS_S = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14_400, 28_800, 86_400)


@dataclass(frozen=True)
class Linear:
    """Maps `low`..`high` to `start`..`end`; what lies outside is put on the edge."""

    low: float
    high: float
    start: float
    end: float

    def at(self, value: float) -> float:
        if self.high <= self.low:
            return self.start
        share = (value - self.low) / (self.high - self.low)
        return self.start + min(1.0, max(0.0, share)) * (self.end - self.start)


@dataclass(frozen=True)
class Log:
    """Like Linear, with equal ratios equally far apart. `low` and `high` are above 0."""

    low: float
    high: float
    start: float
    end: float

    def at(self, value: float) -> float:
        inner = Linear(math.log10(self.low), math.log10(self.high), self.start, self.end)
        return inner.at(math.log10(max(value, self.low)))


def ticks(high: float, most: int = 6) -> list[float]:
    """Round numbers from 0 to `high`, `most` steps at most, the last one not above `high`."""
    if high <= 0 or not math.isfinite(high):
        return [0.0]
    step = _round_step(high / most)
    return [step * at for at in range(int(high / step + 1e-9) + 1)]


def time_ticks(high_s: float, most: int = 6) -> list[float]:
    """Like `ticks`, in steps that are round in seconds, minutes or hours."""
    step = next((step for step in _TIME_STEPS_S if high_s / step <= most), None)
    if step is None or high_s < _TIME_STEPS_S[0]:
        return ticks(high_s, most)
    return [float(step * at) for at in range(int(high_s / step + 1e-9) + 1)]


def decades(low: float, high: float) -> list[float]:
    """Powers of ten that hold `low` and `high` between the first and the last."""
    first = math.floor(math.log10(low) + 1e-9)
    last = max(first + 1, math.ceil(math.log10(high) - 1e-9))
    return [10.0**power for power in range(first, last + 1)]


def _round_step(least: float) -> float:
    power = 10.0 ** math.floor(math.log10(least))
    return next(power * factor for factor in (1, 2, 2.5, 5, 10) if power * factor >= least * (1 - 1e-9))
