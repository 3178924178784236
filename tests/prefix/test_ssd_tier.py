"""The SSD tier under the prefix cache: state whose every byte tells what it was made of goes out, comes
back after restarts and damage, and is right or not there."""

from __future__ import annotations

import errno
import gc
import logging
import os
import shutil
import sqlite3
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import psutil
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headstart.errors import ConfigError
from headstart.prefix import ssd_tier
from headstart.prefix.block import StateLayout
from headstart.prefix.cache import NoMatch
from headstart.prefix.catalog import Catalog, Listed
from headstart.prefix.faults import FileFaults, Step
from headstart.prefix.keys import token_bytes
from headstart.prefix.listing import TEMPORARY
from headstart.prefix.ssd import CATALOG
from headstart.prefix.stops import StopKind
from headstart.prefix.verify import verify
from tests.prefix.disk import Disk, assert_clean, entry_files, listing, path_of, used_on_disk
from tests.prefix.fake import (
    BLOCK,
    DENSE,
    LAYOUTS,
    MY,
    RECURRENT,
    checkpoint_of,
    counting,
    glue,
    longest_stored,
    rows_of,
    run,
    store,
)
from tests.prefix.test_blockfile import other_version

EACH_LAYOUT = pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)


def prompt(number: int, length: int = 6) -> np.ndarray:  # type: ignore[type-arg]
    """A prompt that shares no first token with those of other numbers."""
    return counting(1000 * number, 1000 * number + length)


@EACH_LAYOUT
def test_everything_comes_back_after_a_restart(layout: StateLayout, tmp_path: Path) -> None:
    with Disk(tmp_path, layout=layout) as disk:
        disk.put(counting(0, 18), checkpoints=[7, 18], logits=True)
    with Disk(tmp_path, layout=layout) as disk:
        assert disk.tier.opened.rebuilt is False
        assert disk.tier.opened.adopted == disk.tier.opened.missing == 0
        assert disk.restored(counting(0, 18)) == 18
    with Disk(tmp_path, layout=layout) as disk:
        edited = glue(counting(0, 9), run(99, 98, 97))
        assert disk.restored(edited) == (7 if layout.recurrent else 9)
    assert_clean(tmp_path)


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    steps=st.lists(
        st.tuples(st.lists(st.integers(0, 2), min_size=1, max_size=14), st.booleans()), min_size=1, max_size=8
    )
)
def test_after_any_prompts_and_restarts_the_longest_prefix_comes_back(
    steps: list[tuple[list[int], bool]], tmp_path: Path
) -> None:
    """Compared with the naive answer over all prompts so far."""
    directory = tmp_path / f"{len(list(tmp_path.iterdir()))}"
    disk = Disk(directory)
    seen: list[np.ndarray] = []  # type: ignore[type-arg]
    for ids, restart in steps:
        if restart:
            disk.close()
            disk = Disk(directory)
        tokens = run(*ids)
        assert disk.restored(tokens) == min(longest_stored(tokens, seen), len(tokens) - 1)
        disk.put(tokens)
        seen.append(tokens)
    disk.close()
    assert_clean(directory)


# What is written


def test_nothing_is_written_twice(tmp_path: Path) -> None:
    with Disk(tmp_path) as disk:
        disk.put(counting(0, 18), logits=True)
        disk.flush()
        before = listing(tmp_path / MY.hex())
        written = disk.tier.statistics().written_bytes
        for _ in range(3):
            disk.put(counting(0, 18), logits=True)
            disk.put(counting(0, 11))
        disk.flush()
        assert disk.tier.statistics().written_bytes == written
    with Disk(tmp_path) as disk:
        disk.restored(counting(0, 18))
        disk.put(counting(0, 18), logits=True)
        disk.flush()
        assert disk.tier.statistics().written_bytes == 0
    assert listing(tmp_path / MY.hex()) == before


def test_a_tail_that_grew_takes_the_place_of_the_shorter_one(tmp_path: Path) -> None:
    with Disk(tmp_path) as disk:
        for length in range(1, 9):
            disk.put(counting(0, length))
            disk.flush()
            assert len(entry_files(tmp_path)) == -(-length // 4)
        assert disk.tier.shelf.blocks == 2
    with Disk(tmp_path) as disk:
        assert (disk.tier.opened.entries, disk.tier.opened.stray) == (2, 0)
        assert disk.restored(counting(0, 9)) == 8


def test_a_crash_between_a_longer_tail_and_the_end_of_the_shorter_one(tmp_path: Path) -> None:
    with Disk(tmp_path) as disk:
        disk.put(counting(0, 6), logits=True)
    short = sorted(entry_files(tmp_path), key=os.path.getsize)
    kept = tmp_path.with_name("kept")
    shutil.copytree(tmp_path, kept)
    with Disk(tmp_path) as disk:
        disk.put(counting(0, 8))
    for path in short:
        back = kept / path.relative_to(tmp_path)
        shutil.copy2(back, path)
    with Disk(tmp_path) as disk:
        assert disk.tier.opened.stray == 1
        assert disk.restored(counting(0, 6)) == 6, "the end logits stay, on the longer block"
        assert disk.restored(counting(0, 9)) == 8
    assert_clean(tmp_path)


# The catalog against the files


def remove_catalog(directory: Path) -> None:
    for path in directory.glob("catalog*"):
        path.unlink()


def spoil_catalog(directory: Path) -> None:
    (directory / CATALOG).write_bytes(os.urandom(20_000))


def change_rows(statement: str) -> Callable[[Path], None]:
    def change(directory: Path) -> None:
        with sqlite3.connect(directory / CATALOG) as db:
            db.execute(statement)
        db.close()

    return change


ROW_CHANGES = {
    "missing": remove_catalog,
    "garbage": spoil_catalog,
    "no rows": change_rows("DELETE FROM entries"),
    "half the rows": change_rows("DELETE FROM entries WHERE level > 2"),
    "other tokens": change_rows("UPDATE entries SET tokens=CAST(x'00000009'||substr(tokens,5) AS BLOB)"),
    "other parents": change_rows("UPDATE entries SET parent=(SELECT key FROM entries LIMIT 1)"),
    "other keys": change_rows("UPDATE entries SET key=CAST(x'ff'||substr(key,2) AS BLOB)"),
    "other sizes": change_rows("UPDATE entries SET nbytes=nbytes+1"),
    "other namespace": change_rows("UPDATE namespaces SET name=x'00112233'"),
    "other kinds": change_rows("UPDATE entries SET kind=1-(kind>0)"),
    "text": change_rows("UPDATE entries SET tokens='text', parent='text'"),
    "numbers": change_rows("UPDATE entries SET tokens=7, used_s='now'"),
}


@pytest.mark.parametrize("name", ROW_CHANGES)
@pytest.mark.parametrize("layout", [DENSE, RECURRENT], ids=["dense", "recurrent"])
def test_whatever_the_catalog_says_the_files_decide(name: str, layout: StateLayout, tmp_path: Path) -> None:
    """Everything is found again, and nothing under other tokens than its own."""
    with Disk(tmp_path, layout=layout) as disk:
        disk.put(counting(0, 18), checkpoints=[7, 18], logits=True)
        disk.put(glue(counting(0, 6), run(50, 51)), checkpoints=[8])
    ROW_CHANGES[name](tmp_path)
    told: list[tuple[str, int, int]] = []
    with Disk(tmp_path, layout=layout) as disk:
        assert disk.restored(run(9, 1, 2, 3, 4, 5, 6, 7)) == 0
        assert disk.restored(counting(0, 18)) == 18
        assert disk.restored(glue(counting(0, 6), run(50, 51, 52))) == 8
        assert disk.tier.opened.stray == disk.tier.opened.unusable == 0, told
    with Disk(tmp_path, layout=layout) as disk:
        assert disk.tier.opened.adopted == disk.tier.opened.missing == 0, "put right for good"


FORGERIES: dict[str, Callable[[Listed], Listed]] = {
    "said to be canonical": lambda row: row._replace(canonical=True),
    "other tokens": lambda row: row._replace(tokens=bytes(token_bytes(run(9, 9, 9, 9)))),
    "another parent": lambda row: row._replace(parent=MY),
}


@pytest.mark.parametrize("forgery", FORGERIES)
def test_a_row_whose_checksum_holds_is_not_believed_either(forgery: str, tmp_path: Path) -> None:
    """Neither what it says nor what comes after it is used, for any prompt."""
    with Disk(tmp_path) as disk:
        disk.put(counting(0, 16))
    catalog = Catalog(tmp_path / CATALOG)
    (row,) = (row for row in catalog.listed() if row.level == 2)
    catalog.put([FORGERIES[forgery](row)])
    catalog.close()
    with Disk(tmp_path) as disk:
        assert disk.restored(glue(counting(0, 4), run(9, 9, 9, 9), counting(8, 17))) == 4
        assert disk.restored(glue(counting(4, 8), run(1, 2, 3))) == 0
        assert disk.restored(counting(0, 17)) == 4
    with Disk(tmp_path) as disk:
        assert disk.restored(counting(0, 17)) == 4, "and it is forgotten for good"


def test_a_model_without_rows_comes_back_from_the_disk(tmp_path: Path) -> None:
    """All its state is recurrent: its blocks hold tokens alone."""
    layout = replace(RECURRENT, planes=())
    with Disk(tmp_path, layout=layout) as disk:
        disk.put(counting(0, 9), checkpoints=[6, 9], logits=True)
    with Disk(tmp_path, layout=layout) as disk:
        assert disk.restored(counting(0, 9)) == 9
        assert disk.restored(glue(counting(0, 6), run(50, 51))) == 6


def test_canonical_rows_alone_are_saved_where_no_others_are_used(tmp_path: Path) -> None:
    """Those that replace others in RAM are saved at once, not only at an orderly end."""
    with Disk(tmp_path, canonical_grid=BLOCK) as disk:
        disk.put(counting(0, 9))
        assert len(disk.tier.shelf) == 0
        recorder = disk.cache.recorder(MY, counting(0, 0))
        recorder.record(counting(0, 9), rows_of(DENSE, MY, counting(0, 9), 0, 9), canonical=True)
        assert disk.flush() == 0
        assert [path_of(disk, counting(0, 9), block).exists() for block in range(2)] == [True, True]
        recorder.close()
    with Disk(tmp_path, canonical_grid=BLOCK) as disk:
        assert disk.restored(counting(0, 9)) == 8


def test_a_rebuild_tells_how_far_it_is(tmp_path: Path) -> None:
    with Disk(tmp_path) as disk:
        for number in range(300):
            disk.put(prompt(number))
    remove_catalog(tmp_path)
    told: list[tuple[str, int, int]] = []
    tier = ssd_tier.SsdTier(
        ssd_tier.SsdSettings(tmp_path, 1 << 30, reserve_bytes=0),
        DENSE,
        4,
        progress=lambda *news: told.append(news),
    )
    assert tier.opened.rebuilt and tier.opened.adopted == 600
    assert told[0] == ("reading cache files", 0, 600) and len(told) == 3
    tier.close()


def test_files_and_rows_without_each_other(tmp_path: Path) -> None:
    with Disk(tmp_path) as disk:
        disk.put(counting(0, 12))
        disk.put(prompt(1, 12))
        gone = path_of(disk, counting(0, 12), 1)
    gone.unlink()
    temporary = gone.with_name(TEMPORARY + "77-x.safetensors")
    temporary.write_bytes(b"half")
    change_rows("DELETE FROM entries WHERE level=3")(tmp_path)
    with Disk(tmp_path) as disk:
        opened = disk.tier.opened
        assert (opened.missing, opened.adopted, opened.stray, opened.temporary) == (1, 1, 1, 1)
        assert disk.restored(counting(0, 12)) == 4
        assert disk.restored(glue(prompt(1, 12), run(1))) == 12
    assert_clean(tmp_path)
    with Disk(tmp_path) as disk:
        opened = disk.tier.opened
        assert (opened.missing, opened.adopted, opened.stray, opened.temporary) == (0, 0, 0, 0)


def test_damaged_files_without_a_row_are_removed_and_those_of_another_version_stay(tmp_path: Path) -> None:
    with Disk(tmp_path) as disk:
        disk.put(counting(0, 12))
        first, second, third = (path_of(disk, counting(0, 12), block) for block in range(3))
    remove_catalog(tmp_path)
    second.write_bytes(second.read_bytes()[:-1])
    third.write_bytes(other_version(third.read_bytes()))
    size = third.stat().st_size
    for _ in range(2):
        with Disk(tmp_path) as disk:
            assert (disk.tier.opened.other_version, disk.tier.opened.other_version_bytes) == (1, size)
            assert disk.tier.limit_bytes() == (1 << 30) - size
            assert disk.restored(counting(0, 12)) == 4
        assert first.exists() and third.exists() and not second.exists()
    (problem,) = verify(tmp_path).problems
    assert problem.path == third


def test_another_block_size_is_a_clean_miss(tmp_path: Path) -> None:
    """The block size is part of the namespace: both are kept, and each is found when switched back."""
    for block_tokens in (4, 8, 16):
        with Disk(tmp_path, block_tokens=block_tokens) as disk:
            disk.put(counting(0, 18), namespace=b"blocks of %d" % block_tokens, logits=True)
    for block_tokens in (8, 16, 4):
        with Disk(tmp_path, block_tokens=block_tokens) as disk:
            assert disk.tier.opened.stray == 0
            assert disk.restored(counting(0, 19), b"blocks of %d" % block_tokens) == 18
    assert_clean(tmp_path)


def test_blocks_of_another_size_in_a_namespace_are_not_walked(tmp_path: Path) -> None:
    """They count and can be evicted, but a prompt is never compared with them at wrong offsets."""
    with Disk(tmp_path, block_tokens=8) as disk:
        disk.put(counting(0, 18))
        used = disk.tier.shelf.used_bytes
    for block_tokens in (4, 16):
        with Disk(tmp_path, block_tokens=block_tokens) as disk:
            assert disk.restored(counting(0, 18)) == 0
            assert disk.tier.shelf.used_bytes == used
    with Disk(tmp_path, block_tokens=4, budget_bytes=used // 2) as disk:
        assert 0 < disk.tier.shelf.used_bytes <= used // 2
    assert_clean(tmp_path)


def test_a_store_can_be_moved(tmp_path: Path) -> None:
    with Disk(tmp_path / "a") as disk:
        disk.put(counting(0, 18), logits=True)
    (tmp_path / "a").rename(tmp_path / "b")
    with Disk(tmp_path / "b") as disk:
        assert disk.restored(counting(0, 18)) == 18


# Namespaces


def test_other_weights_are_a_clean_miss_and_both_stay(tmp_path: Path) -> None:
    for namespace in (b"weights one", b"weights two", b"one, other cache type"):
        with Disk(tmp_path) as disk:
            assert disk.restored(counting(0, 9), namespace) == 0
            disk.put(counting(0, 9), namespace=namespace, logits=True)
    for namespace in (b"weights one", b"weights two", b"one, other cache type"):
        with Disk(tmp_path) as disk:
            assert disk.restored(counting(0, 9), namespace) == 9
    assert len(list(tmp_path.glob("*/"))) >= 3


# Read only


def test_reading_alone_changes_nothing_at_all(tmp_path: Path) -> None:
    with Disk(tmp_path) as disk:
        disk.put(counting(0, 9), logits=True)
        disk.put(prompt(5, 9))
        bad = path_of(disk, prompt(5, 9), 1)
        temporary = bad.with_name(TEMPORARY + "1-x")
        orphan = path_of(disk, counting(0, 9), 0)
    bad.write_bytes(bad.read_bytes()[:-3])
    temporary.write_bytes(b"")
    change_rows("DELETE FROM entries WHERE level=2")(tmp_path)
    (tmp_path / "lock").unlink()
    before = listing(tmp_path)
    with Disk(tmp_path, read_only=True, budget_bytes=1) as disk:
        assert disk.restored(counting(0, 9)) == 9
        assert disk.restored(prompt(5, 9)) == 4
        disk.put(prompt(7, 9))
        assert disk.flush() == 0
        disk.tier.poll()
    assert listing(tmp_path) == before
    assert orphan.exists()


def test_reading_beside_the_owner(tmp_path: Path) -> None:
    with Disk(tmp_path) as owner:
        owner.put(counting(0, 9), logits=True)
        owner.flush()
        with Disk(tmp_path, read_only=True) as reader:
            assert reader.restored(counting(0, 9)) == 9
        with pytest.raises(ConfigError, match=str(os.getpid())):
            Disk(tmp_path)


# Budget


def test_the_disk_is_never_used_beyond_the_budget(tmp_path: Path) -> None:
    """Looked at after every file that is written and at every moment between."""
    budget = 150_000
    faults = FileFaults()
    most = 0

    def look(_: Path) -> None:
        nonlocal most
        most = max(most, used_on_disk(tmp_path))

    for step in (Step.WRITTEN, Step.CATALOGUED):
        faults._order(step, look)
    with Disk(tmp_path, budget_bytes=budget, faults=faults, flush_interval_s=0.01) as disk:
        for number in range(50):
            store(disk.cache, prompt(number, 1 + number % 11), logits=number % 2 == 0)
            assert disk.tier.shelf.used_bytes <= budget
        disk.cache.save_tails()
        disk.flush()
        assert disk.tier.shelf.evicted > 30
    assert budget / 2 < most <= budget
    assert_clean(tmp_path)


def test_a_smaller_budget_drops_what_was_used_longest_ago(tmp_path: Path) -> None:
    with Disk(tmp_path) as disk:
        for number in range(8):
            disk.put(prompt(number, 4))
            disk.flush()
            time.sleep(0.002)
        each = disk.tier.shelf.used_bytes // 8
    with Disk(tmp_path) as disk:
        assert disk.restored(prompt(1, 5)) == 4, "used again in another life"
    with Disk(tmp_path, budget_bytes=3 * each + 10) as disk:
        disk.flush()
        assert len(entry_files(tmp_path)) == 3
        kept = [number for number in range(8) if disk.restored(prompt(number, 5))]
        assert kept == [1, 6, 7]
    assert_clean(tmp_path)


def test_what_went_for_room_is_not_written_again_and_again(tmp_path: Path) -> None:
    """RAM holds more than the disk may: saving the rest when idle must not push it through the disk."""
    with Disk(tmp_path, budget_bytes=60_000) as disk:
        for number in range(20):
            disk.put(prompt(number, 4))
        disk.flush()
        written = disk.tier.statistics().written_bytes
        for _ in range(3):
            disk.cache.save_tails()
            disk.flush()
        assert disk.tier.statistics().written_bytes == written


def test_free_space_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Disk(tmp_path) as disk:
        disk.put(prompt(1))
        used = disk.tier.shelf.used_bytes
        monkeypatch.setattr(disk.tier.files, "free_bytes", lambda: 100)
        disk.tier._limit = (-10.0, 0)
        assert disk.tier.limit_bytes() == used + 100
        disk.put(prompt(2))
        assert disk.tier.shelf.used_bytes <= used + 100
        monkeypatch.undo()


def test_a_conversation_longer_than_the_budget_keeps_its_beginning(tmp_path: Path) -> None:
    with Disk(tmp_path, budget_bytes=40_000) as disk:
        disk.put(counting(0, 200))
        assert disk.tier.counts.refused > 0
    with Disk(tmp_path, budget_bytes=40_000) as disk:
        assert 16 <= disk.restored(counting(0, 200)) < 60


def test_ten_thousand_prompts_stay_within_bounds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files, handles, index and memory; RAM tier and disk are both far smaller than what comes. What is
    flushed to the medium does not matter here, and takes time."""
    monkeypatch.setattr(os, "fdatasync", lambda _: None)
    budget = 2_000_000
    with Disk(tmp_path, budget_bytes=budget, ram_bytes=100_000, queue_bytes=200_000) as disk:
        handles, objects = 0, []
        for number in range(10_000):
            store(disk.cache, counting(number * 4, number * 4 + 4))
            if number % 100 == 0:
                disk.flush()
            if number in (5000, 9900):
                gc.collect()
                objects.append(len(gc.get_objects()))
                handles = handles or open_files()
        disk.flush()
        assert disk.tier.shelf.evicted > 5000
        assert disk.tier.shelf.used_bytes <= budget
        assert len(entry_files(tmp_path)) == len(disk.tier.shelf) < 500
        assert len(disk.tier.shelf._queue) < 1200
        assert len(disk.tier._unsaved) == 0
        assert open_files() <= handles + 3
        assert objects[1] < objects[0] * 1.1 + 1000, objects
    assert_clean(tmp_path)


def open_files() -> int:
    return psutil.Process().num_fds()


# A medium that refuses


PAUSING = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS, errno.EACCES)


@pytest.mark.parametrize("step", [Step.OPEN, Step.WRITTEN, Step.FLUSHED])
@pytest.mark.parametrize("number", PAUSING)
def test_a_disk_that_refuses_is_left_alone_for_a_while(
    number: int,
    step: Step,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """RAM serves on; one warning; later everything that RAM still has is written, and one line says so."""
    monkeypatch.setattr(ssd_tier, "PAUSE_S", 0.2)
    faults = FileFaults()
    caplog.set_level(logging.WARNING)
    with Disk(tmp_path, faults=faults) as disk:
        disk.put(counting(0, 8))
        disk.flush()
        faults.fail(step, number)
        for number_of in range(1, 6):
            disk.put(prompt(number_of, 9), logits=True)
            assert disk.flush() > 0
            assert disk.restored(prompt(number_of, 9)) == 9, "from RAM"
        assert len(caplog.records) == 1, caplog.text
        assert ("free some space" in caplog.text) == (number in (errno.ENOSPC, errno.EDQUOT))
        assert list(tmp_path.glob(f"*/*/{TEMPORARY}*")) == []
        tried = faults.steps[step]
        time.sleep(0.25)
        disk.tier.poll()
        time.sleep(0.1)
        disk.tier.poll()
        assert faults.steps[step] == tried + 1, "one file is tried, not all"
        faults.heal()
        time.sleep(0.25)
        disk.tier.poll()
        deadline_s = time.monotonic() + 10
        while disk.flush() and time.monotonic() < deadline_s:
            pass
        assert len(caplog.records) == 2 and "written again" in caplog.records[-1].message
    with Disk(tmp_path) as disk:
        for number_of in range(1, 6):
            assert disk.restored(prompt(number_of, 9)) == 9
    assert_clean(tmp_path)


def test_a_failure_in_the_middle_of_a_chain_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Blocks behind the one that failed are written although nothing leads to them; they go and come
    again in order."""
    monkeypatch.setattr(ssd_tier, "PAUSE_S", 0.0)
    faults = FileFaults()

    class Once(FileFaults):
        def at(self, step: Step, path: Path) -> None:
            super().at(step, path)
            if step is Step.FLUSHED and self.steps[step] == 3:
                raise OSError(errno.ENOSPC, "once")

    faults = Once()
    with Disk(tmp_path, faults=faults) as disk:
        faults.delay(Step.OPEN, 0.01)
        disk.put(counting(0, 30), logits=True)
        assert disk.flush() == 0
        assert disk.tier.counts.write_errors == 1
    with Disk(tmp_path) as disk:
        assert disk.tier.opened.stray == 0
        assert disk.restored(counting(0, 30)) == 30
    assert_clean(tmp_path)


def test_an_error_of_one_entry_stops_no_other(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    class OneName(FileFaults):
        def at(self, step: Step, path: Path) -> None:
            if step is Step.OPEN and self.steps[step] == 1:
                self.steps[step] += 1
                raise OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG), str(path))
            super().at(step, path)

    with Disk(tmp_path, faults=OneName()) as disk:
        for number in range(4):
            disk.put(prompt(number, 4))
        assert disk.flush() == 0
        assert disk.tier.counts.write_errors == 1
        assert len(entry_files(tmp_path)) == 3
    assert "could not be written" in caplog.text and "RAM alone" not in caplog.text


def test_what_found_the_queue_full_is_saved_later(tmp_path: Path) -> None:
    faults = FileFaults()
    with Disk(tmp_path, faults=faults, queue_bytes=300) as disk:
        faults.delay(Step.OPEN, 0.01)
        disk.put(counting(0, 40), logits=True)
        assert disk.tier.unsaved_bytes() > 0
        assert disk.tier.statistics().waiting >= 5
        assert disk.flush() == 0
        assert disk.tier.statistics().waiting == 0
        assert len(disk.tier.shelf) == 11
    with Disk(tmp_path) as disk:
        assert disk.restored(counting(0, 40)) == 40


def test_whoever_asked_is_woken_when_something_was_written(tmp_path: Path) -> None:
    woken = threading.Event()
    with Disk(tmp_path, flush_interval_s=60) as disk:
        disk.tier.wake_on_answers(woken.set)
        disk.put(prompt(1))
        assert woken.wait(10)


def test_what_ram_has_dropped_meanwhile_is_forgotten(tmp_path: Path) -> None:
    faults = FileFaults()
    with Disk(tmp_path, faults=faults, ram_bytes=30_000) as disk:
        faults.fail(Step.OPEN, errno.ENOSPC)
        disk.put(prompt(0))
        disk.flush()
        for number in range(1, 4000):
            store(disk.cache, prompt(number, 4))
        assert 0 < len(disk.tier._unsaved) < 2500


# Damage while it runs


def test_damage_costs_what_lies_behind_it_and_is_written_anew(tmp_path: Path) -> None:
    with Disk(tmp_path, layout=RECURRENT) as disk:
        disk.put(counting(0, 18), checkpoints=[7, 18], logits=True)
    files = [path.relative_to(tmp_path) for path in entry_files(tmp_path)]
    clean = tmp_path.with_name("clean")
    tmp_path.rename(clean)
    for file in files:
        shutil.rmtree(tmp_path, ignore_errors=True)
        shutil.copytree(clean, tmp_path)
        data = bytearray((tmp_path / file).read_bytes())
        data[-1] ^= 1
        (tmp_path / file).write_bytes(data)
        assert [problem.path for problem in verify(tmp_path).problems] == [tmp_path / file]
        with Disk(tmp_path, layout=RECURRENT) as disk:
            assert disk.restored(counting(0, 18)) in (0, 7, 17, 18)
            seen = disk.tier.counts.read_failures
            assert seen <= 1
            disk.put(counting(0, 18), checkpoints=[7, 18], logits=True)
        with Disk(tmp_path, layout=RECURRENT) as disk:
            assert disk.restored(counting(0, 18)) == 18
        assert len(verify(tmp_path).problems) == 1 - seen, "what was not needed was not looked at"


def test_state_of_another_shape_is_refused(tmp_path: Path) -> None:
    with Disk(tmp_path) as disk:
        disk.put(counting(0, 9))
    for layout in (LAYOUTS["window"], StateLayout((DENSE.planes[0],), 0, 4096, 5)):
        with Disk(tmp_path, layout=layout) as disk:
            answer = disk.bring(counting(0, 9))
            if layout is LAYOUTS["window"]:
                assert isinstance(answer, NoMatch)


def test_the_first_kind_of_a_checkpoint_is_kept(tmp_path: Path) -> None:
    with Disk(tmp_path, layout=RECURRENT) as disk:
        disk.put(counting(0, 9), checkpoints=[6], kind=StopKind.HEAD)
    with Disk(tmp_path, layout=RECURRENT) as disk:
        match = disk.tier.match(MY, token_bytes(counting(0, 9)))
        (mark,) = [m for node in match.path if node.marks for m in node.marks.checkpoints]
        assert mark.kind is StopKind.HEAD
        assert disk.tier.read(mark) == checkpoint_of(MY, counting(0, 9), 6).data
