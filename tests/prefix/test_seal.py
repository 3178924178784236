"""A sealed store opens without looking for its files; whatever was changed since breaks the seal."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from headstart.prefix import seal
from headstart.prefix.faults import FileFaults, Step
from headstart.prefix.listing import Names
from headstart.prefix.seal import SEAL, UNFINISHED
from headstart.prefix.ssd import CATALOG, SsdFiles
from headstart.prefix.upkeep import owned
from tests.prefix.disk import Disk, entry_files
from tests.prefix.fake import counting, glue, run


@pytest.fixture
def store(tmp_path: Path) -> Path:
    with Disk(tmp_path) as disk:
        disk.put(counting(0, 18), logits=True)
    return tmp_path


def opened_without_looking(store: Path, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether the store is opened on the strength of its seal; what it holds must be right either way."""
    looked = []

    def names(files: SsdFiles) -> Names:
        looked.append(files)
        return real(files)

    real = SsdFiles.names
    monkeypatch.setattr(SsdFiles, "names", names)
    with Disk(store) as disk:
        assert not (store / SEAL).exists(), "broken before anything is changed"
        assert disk.restored(counting(0, 19)) in (4, 8, 12, 18)
    return not looked


def test_an_orderly_end_seals_and_the_next_start_believes_it(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert (store / SEAL).stat().st_mode & 0o777 == 0o600
    for _ in range(3):
        assert opened_without_looking(store, monkeypatch)
    with Disk(store) as disk:
        assert disk.tier.opened.entries == len(entry_files(store))
        disk.put(glue(counting(0, 6), run(50, 51, 52)))
    assert opened_without_looking(store, monkeypatch)


def a_file_is_gone(store: Path) -> None:
    entry_files(store)[0].unlink()


def a_file_came(store: Path) -> None:
    one = entry_files(store)[0]
    shutil.copy(one, one.with_name(one.name[:2] + "0" * 62 + ".safetensors"))


def a_write_was_broken_off(store: Path) -> None:
    entry_files(store)[0].with_name(".tmp-1-x.safetensors").write_bytes(b"half")


def a_namespace_came(store: Path) -> None:
    (store / ("ab" * 48)).mkdir()


def another_row(store: Path) -> None:
    db = sqlite3.connect(store / CATALOG)
    db.execute("UPDATE entries SET hits=hits+1")
    db.commit()
    db.close()


def a_flipped_bit_in_the_catalog(store: Path) -> None:
    data = bytearray((store / CATALOG).read_bytes())
    data[-100] ^= 1
    (store / CATALOG).write_bytes(data)


def no_catalog(store: Path) -> None:
    (store / CATALOG).unlink()


def a_log_beside_the_catalog(store: Path) -> None:
    (store / f"{CATALOG}-wal").write_bytes(b"")


def another_seal(store: Path) -> None:
    (store / SEAL).write_text("0" * 64)


def a_seal_that_is_no_text(store: Path) -> None:
    (store / SEAL).write_bytes(b"\xff\x00")


@pytest.mark.parametrize(
    "change",
    [
        a_file_is_gone,
        a_file_came,
        a_write_was_broken_off,
        a_namespace_came,
        another_row,
        a_flipped_bit_in_the_catalog,
        no_catalog,
        a_log_beside_the_catalog,
        another_seal,
        a_seal_that_is_no_text,
    ],
)
def test_any_change_breaks_the_seal(
    change: Callable[[Path], None], store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert seal.holds(store)
    change(store)
    assert not opened_without_looking(store, monkeypatch)


def test_a_seal_that_was_broken_off_goes_at_the_next_start(store: Path) -> None:
    (store / SEAL).rename(store / UNFINISHED)
    with Disk(store) as disk:
        assert not (store / UNFINISHED).exists()
        assert disk.restored(counting(0, 18)) == 18


def test_a_store_that_was_not_closed_has_no_seal(store: Path) -> None:
    disk = Disk(store)
    assert not seal.holds(store)
    with pytest.raises(ValueError, match="not closed"):
        seal.seal(store)
    disk.close()
    assert seal.holds(store)


def test_a_store_that_may_hold_unknown_files_is_not_sealed(store: Path) -> None:
    one = entry_files(store)[0]
    one.write_bytes(one.read_bytes().replace(b"headstart-state-1", b"headstart-state-9"))
    with sqlite3.connect(store / CATALOG) as db:
        db.execute("DELETE FROM entries")
    db.close()
    with Disk(store) as disk:
        assert disk.tier.opened.unusable + disk.tier.opened.other_version == 1
    assert not (store / SEAL).exists()


def test_readers_leave_the_seal_and_gc_does_not_rely_on_it(store: Path) -> None:
    with Disk(store, read_only=True) as disk:
        assert disk.restored(counting(0, 18)) == 18
    assert seal.holds(store)
    path = entry_files(store)[0]
    times = path.parent.stat()
    path.write_bytes(path.read_bytes()[:-1])
    assert times.st_mtime_ns == path.parent.stat().st_mtime_ns, "the folder does not tell"
    assert seal.holds(store)
    with owned(store) as own:
        assert len(own) == len(entry_files(store))
    assert not path.exists()
    assert not (store / SEAL).exists()


def test_a_failed_write_leaves_no_seal(tmp_path: Path) -> None:
    faults = FileFaults()
    with Disk(tmp_path, faults=faults) as disk:
        disk.put(counting(0, 8))
        disk.flush()
        faults.fail(Step.RENAMED, 28)
        disk.put(counting(20, 28))
        disk.flush()
        faults.heal()
    assert not (tmp_path / SEAL).exists()
