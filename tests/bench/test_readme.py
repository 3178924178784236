"""Measured tables go into the README between their markers, and nowhere else."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import pytest

from prefix_reuse import Record
from readme import README, filled, kill_lines, reuse_table, sections

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
    for name in ("prefix_reuse", "speed", "ssd"):
        assert "content" in filled(README.read_text(), name, "content")


def test_tables_come_from_results(tmp_path: Path) -> None:
    assert sections(tmp_path) == {}
    results = {"machine": MACHINE, "threads": 2, "steps": [asdict(record) for record in RECORDS]}
    (tmp_path / "prefix_reuse.json").write_text(json.dumps(results))
    found = sections(tmp_path)["prefix_reuse"]
    assert found.startswith(reuse_table(RECORDS))
    assert "| m | w | 2,000 | 20 | 1,010 | 700 | 20 ms | 3,000 ms |" in found
    assert found.endswith("P, 2 threads of 4, 8 GB; x 1; 2026-01-02.")


def test_tables_about_the_ssd_tier_are_put_together(tmp_path: Path) -> None:
    about = {"machine": MACHINE, "threads": 1}
    spread = {"median_s": 0.051}
    store = {"blocks": 1000, "peak_bytes": 44e6, "rebuilt_s": None}
    store |= {"after_an_orderly_end": spread, "after_a_kill": spread}
    (tmp_path / "open_store.json").write_text(json.dumps({**about, "stores": [store]}))
    kills = {
        **{"kills": 7, "landed": {"prefill": 3, "decode": 4}, "files_checked": 1200, "half_written": 2},
        **{"answers_compared": 20, "missing_tokens_at_most": 31, "oldest_missing_s": 0.0194, "problems": []},
    }
    (tmp_path / "kill_loop.json").write_text(json.dumps({**about, **kills}))
    found = sections(tmp_path)["ssd"]
    assert "| 1,000 | 0.05 s | 0.05 s |  | 44 MB |" in found
    assert "\n".join(kill_lines(kills)) in found
    assert "| oldest whole block that was lost | 19 ms before the kill |" in found
    assert found.count("P, 1 threads of 4") == 2
