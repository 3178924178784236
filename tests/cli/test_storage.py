"""The cache on disk from the command line's side: opening it, and what is said at the end."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path

import pytest

from headstart.cli import storage
from headstart.cli.describe import describe_ssd
from headstart.cli.storage import close_tier, describe_end, every_second, open_tier, take_files
from headstart.cli.terminal import Terminal
from headstart.config import Settings
from headstart.engines.toy import ToyEngine
from headstart.errors import ConfigError
from headstart.prefix.ssd_counts import SsdStatistics
from headstart.prefix.ssd_tier import SsdTier

LAYOUT = ToyEngine().layout
NOTHING = SsdStatistics(
    used_bytes=0,
    limit_bytes=0,
    blocks=0,
    marks=0,
    waiting=0,
    saved=0,
    refused=0,
    evicted=0,
    write_errors=0,
    written_bytes=0,
    read_bytes=0,
    read_failures=0,
)


def settings(directory: Path, **changes: object) -> Settings:
    return replace(Settings(engine="toy", base_path=str(directory)), ssd_reserve_bytes=0, **changes)  # type: ignore[arg-type]


def opened(given: Settings) -> SsdTier:
    files = take_files(given)
    assert files is not None
    return open_tier(given, LAYOUT, files, Terminal(io.StringIO(), {}))


@pytest.mark.parametrize("changes", [{"cache": False}, {"ssd_cache_bytes": 0}])
def test_no_cache_on_disk_touches_nothing(tmp_path: Path, changes: dict[str, object]) -> None:
    assert take_files(settings(tmp_path, **changes)) is None
    assert list(tmp_path.iterdir()) == []


def test_a_store_in_use_is_refused_before_a_model_is_loaded(tmp_path: Path) -> None:
    files = take_files(settings(tmp_path))
    assert files is not None
    with pytest.raises(ConfigError, match=r"in use by process \d+; .*--ssd-cache-dir.*--cache-read-only"):
        take_files(settings(tmp_path))
    files.close()
    with pytest.raises(ConfigError, match="does not exist"):
        take_files(settings(tmp_path / "other", cache_read_only=True))


def test_the_line_about_the_store(tmp_path: Path) -> None:
    assert describe_ssd(None) == "off (--ssd-cache 0)"
    given = settings(tmp_path, ssd_cache_bytes=1 << 20)
    tier = opened(given)
    assert f"{tmp_path}/ssd: 0 entries, 0 B of 1.0 MB; opened in 0." in describe_ssd(tier)
    tier.opened = replace(tier.opened, adopted=2, temporary=1)
    assert describe_ssd(tier).endswith("; files found: 2 added to the list, 1 temporary removed")
    tier.close()
    reader = opened(settings(tmp_path, cache_read_only=True))
    assert "0 entries, 0 B, read only" in describe_ssd(reader)
    reader.close()
    large = opened(settings(tmp_path, ssd_cache_bytes=1 << 60))
    assert "(1048576.0 TB would leave too little free)" in describe_ssd(large)
    large.close()


def test_the_end_is_told_and_the_store_let_go(tmp_path: Path) -> None:
    tier = opened(settings(tmp_path))
    stream = io.StringIO()
    close_tier(tier, tier.statistics(), Terminal(stream, {}))
    assert stream.getvalue() == ("ssd     0 entries (0 B) written at the end; all of the cache is on disk\n")
    opened(settings(tmp_path)).close()


def test_what_was_not_written_is_told() -> None:
    after = replace(NOTHING, saved=1200, written_bytes=3 << 20, write_errors=2, refused=1)
    assert describe_end(NOTHING, after, 5, 2 << 20) == (
        "1,200 entries (3.0 MB) written at the end; 5 entries (2.0 MB) not written in time; "
        "2 entries could not be written; 1 entries did not fit in --ssd-cache"
    )


def test_progress_is_told_only_where_it_takes_long(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = 100.0
    monkeypatch.setattr(storage.time, "monotonic", lambda: now_s)
    told: list[str] = []
    say = every_second(told.append)
    for now_s in (100.1, 100.9, 101.1, 101.5, 102.2):
        say(f"{now_s}")
    assert told == ["101.1", "102.2"]
