"""Prometheus' text format, read into plain numbers."""

from __future__ import annotations

from collections.abc import Mapping

from prometheus_client.parser import text_string_to_metric_families

from headstart.accept.exchange import Counters
from headstart.accept.servers import Http


def read(text: str) -> dict[str, float]:
    """Counters and gauges by name, and by name with labels where there are any; empty for what is not
    this format. A sample's name alone stands for the sum over its labels."""
    found: dict[str, float] = {}
    try:
        for family in text_string_to_metric_families(text):
            if family.type in ("histogram", "gaugehistogram", "summary"):
                continue
            for sample in family.samples:
                if sample.name.endswith("_created") or sample.value != sample.value:
                    continue
                found[sample.name] = found.get(sample.name, 0.0) + sample.value
                if sample.labels:
                    labels = ",".join(f"{key}={value}" for key, value in sorted(sample.labels.items()))
                    found[f"{sample.name}{{{labels}}}"] = sample.value
    except (ValueError, KeyError, IndexError):
        return {}
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
