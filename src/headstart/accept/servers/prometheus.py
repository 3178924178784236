"""Metrics in Prometheus' text format, as most servers give them at /metrics, read into plain numbers."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from headstart.accept.exchange import Counters
from headstart.accept.servers import Http

_LINE = re.compile(r"([A-Za-z_:][A-Za-z0-9_:]*)(?:\{(.*)\})?\s+(\S+)(?:\s+\S+)?")
_LABEL = re.compile(r'([A-Za-z_][A-Za-z0-9_]*)="((?:[^"\\]|\\.)*)"')


@dataclass(frozen=True)
class Sample:
    """One line: a metric with its labels and value."""

    name: str
    labels: Mapping[str, str]
    value: float


def parse(text: str) -> list[Sample]:
    """Every readable sample of `text`; lines of another form and values that are no number are left out."""
    found = []
    for line in text.splitlines():
        match = None if line.startswith("#") else _LINE.fullmatch(line.strip())
        if match is None:
            continue
        try:
            value = float(match[3])
        except ValueError:
            continue
        if math.isfinite(value):
            found.append(Sample(match[1], dict(_LABEL.findall(match[2] or "")), value))
    return found


def totals(
    samples: Sequence[Sample], label: str = "model_name", model: str | None = None
) -> dict[str, float]:
    """Sum of every metric by name, histogram buckets left out. Samples that name another model in `label`
    than `model` are left out, unless no sample names it at all."""
    named = {sample.labels[label] for sample in samples if label in sample.labels}
    only = model if model in named else None
    found: dict[str, float] = {}
    for sample in samples:
        other = only is not None and sample.labels.get(label, only) != only
        if not other and not sample.name.endswith(("_bucket", "_created")):
            found[sample.name] = found.get(sample.name, 0.0) + sample.value
    return found


def read(text: str) -> dict[str, float]:
    """Numbers by name, and by name with labels where there are any; empty for what is not this format. A
    metric's name alone stands for the sum over its labels."""
    samples = parse(text)
    found = totals(samples)
    for one in samples:
        if one.labels and one.name in found:
            labels = ",".join(f"{key}={value}" for key, value in sorted(one.labels.items()))
            found[f"{one.name}{{{labels}}}"] = one.value
    return found


def scrape(http: Http, path: str = "/metrics") -> dict[str, float]:
    """The numbers at `path`; empty where there are none."""
    answer = http.get(path)
    return read(answer.text) if answer.ok and "<html" not in answer.text[:200].lower() else {}


def counters(found: Mapping[str, float], names: Mapping[str, str]) -> Counters | None:
    """Counters out of `found`; `names`: the server's name by field of Counters. None for no numbers."""
    if not found:
        return None
    known = {field: found[name] for field, name in names.items() if name in found}
    return Counters(**known, all=dict(found))


def first(numbers: Mapping[str, float], *names: str) -> float | None:
    """The value of the first of `names` that is there; None where none is."""
    return next((numbers[name] for name in names if name in numbers), None)


def less(whole: float | None, part: float | None) -> float | None:
    """`whole` - `part`; None where either is unknown."""
    return None if whole is None or part is None else whole - part
