"""Measured tables go into the README between their markers, and nowhere else."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import pytest

from prefix_reuse import Record
from readme import README, filled, reuse_table, sections

RECORDS = [
    Record("m", server, "w", "s", cold, 1000, 10, read, seconds, 1.0)
    for server, cold, read, seconds in (
        ("a", True, 1000, 4.0),
        ("a", False, 10, 0.02),
        ("b", False, 700, 3.0),
    )
]
MACHINE = {
    "processor": "P",
    "threads": 4,
    "memory_bytes": 8 << 30,
    "packages": {"x": "1"},
    "time": "2026-01-02T",
}


def test_only_what_is_between_the_markers_changes() -> None:
    text = "a\n<!-- bench:x -->\nold\nold\n<!-- /bench:x -->\nb\n"
    assert filled(text, "x", "new") == "a\n<!-- bench:x -->\nnew\n<!-- /bench:x -->\nb\n"
    with pytest.raises(ValueError, match="no markers for y"):
        filled(text, "y", "new")


def test_the_readme_has_every_marker() -> None:
    for name in ("prefix_reuse", "speed"):
        assert "content" in filled(README.read_text(), name, "content")


def test_tables_come_from_results(tmp_path: Path) -> None:
    assert sections(tmp_path) == {}
    results = {"machine": MACHINE, "threads": 2, "steps": [asdict(record) for record in RECORDS]}
    (tmp_path / "prefix_reuse.json").write_text(json.dumps(results))
    found = sections(tmp_path)["prefix_reuse"]
    assert found.startswith(reuse_table(RECORDS))
    assert "| m | w | 2,000 | 20 | 1,010 | 700 | 20 ms | 3,000 ms |" in found
    assert found.endswith("P, 2 threads of 4, 8 GB; x 1; 2026-01-02.")
