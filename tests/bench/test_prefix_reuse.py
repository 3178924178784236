"""Sums and table of the benchmark of tokens read."""

from __future__ import annotations

import pytest

from prefix_reuse import Record, summary, table


def record(server: str, read: int, first_token_s: float, *, cold: bool = False) -> Record:
    return Record("m", server, "w", "s", cold, 100, 10, read, first_token_s, wall_s=2 * first_token_s)


OURS = [record("a", 100, 4.0, cold=True), record("a", 10, 0.1), record("a", 12, 0.3)]
THEIRS = [record("b", 100, 5.0, cold=True), record("b", 50, 2.0)]


def test_summary_sums_tokens_and_tells_cold_from_warm() -> None:
    assert summary(OURS) == {
        "sent": 300,
        "perfect": 30,
        "read": 122,
        "cold_s": 4.0,
        "warm_s": pytest.approx(0.2),
        "wall_s": pytest.approx(8.8),
    }


def test_table_has_a_row_a_workload_and_columns_a_server() -> None:
    head, _, row = table(OURS + THEIRS).splitlines()
    assert head.count("read") == 2
    assert row.startswith("| m | w | 300 | 30 | 122 | +92 | 4000 ms | 200 ms | 8.8 s |")
    assert "| 150 | +130 | 5000 ms | 2000 ms | 14.0 s |" in row
