from __future__ import annotations

import math

import pytest

from headstart.accept.report.units import figure, memory, moment, number, seconds, spread
from headstart.accept.verdict import Figure


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (None, "–"),
        (math.nan, "–"),
        (0.0, "0 ms"),
        (0.00042, "0.4 ms"),
        (0.0999, "100 ms"),
        (0.9999, "1.00 s"),
        (12.44, "12.4 s"),
        (99.96, "1 min 40 s"),
        (200.0, "3 min 20 s"),
        (3599.7, "1 h 00 min"),
        (7500.0, "2 h 05 min"),
        (-1.5, "-1.50 s"),
    ],
)
def test_seconds(value: float | None, said: str) -> None:
    assert seconds(value) == said


def test_numbers_and_bytes() -> None:
    assert [number(n) for n in (0, 8192, 1234.56, 0.000213, math.inf, None)] == [
        "0",
        "8,192",
        "1,234.6",
        "0.000213",
        "–",
        "–",
    ]
    assert [memory(n) for n in (None, 12, 25_200_000_000)] == ["–", "12 B", "23.5 GB"]


@pytest.mark.parametrize(
    ("name", "value", "shown"),
    [
        ("gap_tokens", 1, ("gap", "1 token")),
        ("gap_tokens", 8191, ("gap", "8,191 tokens")),
        ("warm_s", 0.084, ("warm", "84 ms")),
        ("read_s_per_token", 0.0015, ("read", "1.5 ms a token")),
        ("entry_bytes", 2048, ("entry", "2.0 KB")),
        ("took_ms", 250, ("took", "250 ms")),
        ("decode_tokens_per_s", 41.2, ("decode", "41.2 tokens/s")),
        ("reused_tokens", None, ("reused", "not known")),
        ("streamed", True, ("streamed", "yes")),
        ("detail", "a\x1bb", ("detail", "a\\x1bb")),
        ("_s", 3, (" s", "3")),
        ("x_s", math.nan, ("x", "–")),
    ],
)
def test_a_figures_unit_comes_from_its_name(name: str, value: Figure, shown: tuple[str, str]) -> None:
    assert figure(name, value) == shown


def test_spread_and_moment() -> None:
    assert spread(()) == "–"
    assert spread((1.0,)) == "1.00 s (1 sample)"
    assert spread((3.0, 1.0, 2.0)) == "2.00 s (1.00 s to 3.00 s, 3 samples)"
    assert moment(0) == "1970-01-01 00:00 UTC"
    assert moment(math.nan) == moment(1e300) == "unknown"
