"""Opening a store: what each disagreement between catalog and files leads to, one at a time."""

from __future__ import annotations

import errno
import shutil
import sqlite3
from pathlib import Path

import numpy as np
import pytest

from headstart.errors import ConfigError
from headstart.prefix import ssd
from headstart.prefix.catalog import Catalog, CatalogDamagedError, Listed
from headstart.prefix.listing import FoundFile
from headstart.prefix.opening import OpenReport, open_store
from headstart.prefix.report import Reason
from headstart.prefix.shelf import Shelf
from headstart.prefix.ssd import CATALOG, SsdFiles, StoreFileError
from tests.prefix.disk import block_head, entry_files, listing
from tests.prefix.fake import BLOCK, MY, counting, run

FIRST = block_head(counting(0, 4))
SECOND = block_head(counting(4, 8), FIRST.key, level=2)
OTHER = block_head(run(9, 9), namespace=b"other", parent=b"other")


def opened(
    directory: Path, *, read_only: bool = False, check_sizes: bool = False
) -> tuple[OpenReport, Shelf]:
    files, shelf = SsdFiles(directory, read_only=read_only), Shelf(BLOCK)
    try:
        report, catalog = open_store(files, shelf, lambda *_: None, check_sizes=check_sizes)
        assert (catalog is None) == read_only
        if catalog is not None:
            catalog.close()
    finally:
        files.close()
    return report, shelf


def rows(directory: Path) -> dict[bytes, Listed]:
    catalog = Catalog(directory / CATALOG, read_only=True)
    found = {row.key: row for row in catalog.listed()}
    catalog.close()
    return found


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """Three entries, listed."""
    files = SsdFiles(tmp_path / "store")
    for head in (FIRST, SECOND, OTHER):
        files.write(head, {"plane.k": np.zeros((len(head.tokens) // 4, 8), np.uint8)})
    files.close()
    assert opened(tmp_path / "store")[0].adopted == 3
    return tmp_path / "store"


def path_of(store: Path, head: object = FIRST) -> Path:
    return SsdFiles(store, read_only=True).path(head.namespace, head.key)  # type: ignore[attr-defined]


def test_nothing_is_done_to_a_store_in_order(store: Path) -> None:
    before = rows(store)
    report, shelf = opened(store)
    assert report == OpenReport(3, 0, 0, 0, 0, False, 0.0)
    assert len(shelf) == 3 and rows(store) == before


def test_an_empty_store_is_not_made_anew(tmp_path: Path) -> None:
    assert not opened(tmp_path)[0].rebuilt
    assert not opened(tmp_path)[0].rebuilt


def test_a_row_of_another_size_is_not_believed(store: Path) -> None:
    """The file is cut short. Where sizes are checked it is found out now, else when it is read."""
    path = path_of(store, SECOND)
    path.write_bytes(path.read_bytes()[:-1])
    report, shelf = opened(store)
    assert (report.missing, report.entries) == (0, 3)
    report, shelf = opened(store, check_sizes=True)
    assert (report.missing, report.unusable, report.entries) == (1, 1, 2)
    assert SECOND.key not in shelf and SECOND.key not in rows(store) and not path.exists()


def test_a_file_that_takes_the_place_of_a_row_has_the_files_time(store: Path) -> None:
    with sqlite3.connect(store / CATALOG) as db:
        db.execute("DELETE FROM entries")
    db.close()
    report, shelf = opened(store)
    assert (report.adopted, report.rebuilt) == (3, True)
    node = shelf.block(FIRST.key)
    assert node is not None and node.clock == path_of(store).stat().st_mtime
    assert rows(store)[FIRST.key].used_s == node.clock


def test_what_hangs_on_nothing_goes_with_its_row(store: Path) -> None:
    path_of(store).unlink()
    report, _ = opened(store)
    assert (report.missing, report.stray) == (1, 1)
    assert set(rows(store)) == {OTHER.key}
    assert len(entry_files(store)) == 1


def test_what_was_put_right_is_right_for_the_next_one_even_after_a_kill(store: Path) -> None:
    """Committed by the time the store is open, not only once the catalog is closed."""
    path_of(store, SECOND).unlink()
    files = SsdFiles(store)
    _, catalog = open_store(files, Shelf(BLOCK), lambda *_: None)
    assert catalog is not None and set(rows(store)) == {FIRST.key, OTHER.key}
    catalog.close()
    files.close()


def test_a_namespace_that_was_copied_to_another_name_hides_nothing(store: Path) -> None:
    """The copies say themselves that they are others."""
    for name in (b"\0", b"copy", b"\xff"):
        shutil.copytree(store / MY.hex(), store / name.hex())
    report, shelf = opened(store)
    assert (report.entries, report.missing, report.unusable) == (3, 0, 6)
    assert FIRST.key in shelf and len(entry_files(store)) == 3


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("read_only", [False, True])
def test_a_damaged_catalog_goes_with_its_log(late: bool, read_only: bool, store: Path) -> None:
    """Whether the damage shows when it is opened or only when its rows are read."""
    if late:
        with sqlite3.connect(store / CATALOG) as db:
            db.execute("UPDATE entries SET kind='x'")
        db.close()
    else:
        (store / CATALOG).write_bytes(b"garbage" * 1000)
        (store / (CATALOG + "-wal")).write_bytes(b"of something else")
    before = listing(store)
    report, shelf = opened(store, read_only=read_only)
    assert (report.rebuilt, report.adopted, len(shelf)) == (True, 3, 3)
    if read_only:
        assert listing(store) == before
    else:
        assert set(rows(store)) == {FIRST.key, SECOND.key, OTHER.key}


def test_the_log_of_a_damaged_catalog_does_not_bring_its_rows_back(tmp_path: Path, store: Path) -> None:
    """As a kill leaves it: all that was committed is in the log."""
    catalog = Catalog(tmp_path / CATALOG)
    catalog.put([Listed.of(b"of old", FIRST, 1, 0, 1.0)])
    catalog.commit()
    log = (tmp_path / (CATALOG + "-wal")).read_bytes()
    catalog.close()
    (store / CATALOG).write_bytes(b"\xff" * 4096)
    (store / (CATALOG + "-wal")).write_bytes(log[:-2000])
    assert opened(store)[0].entries == 3
    assert set(rows(store)) == {FIRST.key, SECOND.key, OTHER.key}


def test_a_damaged_catalog_counts_as_such_without_any_entry(tmp_path: Path) -> None:
    (tmp_path / CATALOG).write_bytes(b"garbage" * 1000)
    assert opened(tmp_path)[0].rebuilt


class Unlucky(SsdFiles):
    """`FIRST` meets `error` when its head is read."""

    error: Exception

    def head_of(self, found: FoundFile) -> object:  # type: ignore[override]
        if found.key == FIRST.key:
            raise self.error
        return super().head_of(found)


@pytest.mark.parametrize(
    ("error", "unusable"),
    [(StoreFileError(Reason.IO_ERROR, "the medium"), 1), (FileNotFoundError("went meanwhile"), 0)],
)
def test_a_file_that_could_not_be_read_is_no_damaged_one(
    error: Exception, unusable: int, store: Path
) -> None:
    """It may be readable next time, so it stays."""
    (store / CATALOG).unlink()
    files = Unlucky(store)
    files.error = error
    report, catalog = open_store(files, Shelf(BLOCK), lambda *_: None)
    assert (report.unusable, report.entries) == (unusable, 1)
    assert path_of(store).exists()
    assert catalog is not None
    catalog.close()
    files.close()


def test_what_cannot_be_removed_does_not_keep_the_store_shut(
    store: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    path_of(store, SECOND).write_bytes(b"")

    def refuse(*_: object) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(ssd.SsdFiles, "clear_path", refuse)
    assert opened(store, check_sizes=True)[0].entries == 2
    assert "cannot be removed: Read-only" in caplog.text


@pytest.mark.parametrize(
    "error",
    [OSError(errno.EIO, "I/O error"), sqlite3.OperationalError("locked"), CatalogDamagedError("torn")],
)
def test_a_store_that_cannot_be_opened_says_what_to_do(
    error: Exception, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: object) -> None:
        raise error

    monkeypatch.setattr(ssd.SsdFiles, "names", refuse)
    with pytest.raises(ConfigError, match="--ssd-cache-dir"):
        opened(tmp_path)


@pytest.mark.parametrize(
    "place", ["{other}/{name}", "{first}{second}/{name}", "{first}/{upper}", "{first}/{name}x"]
)
def test_a_file_that_lies_elsewhere_or_is_called_otherwise_bears_no_row_out(place: str, store: Path) -> None:
    """And it is left alone: it is not the store's."""
    path = path_of(store, SECOND)
    name, stem = path.name, SECOND.key.hex()
    other = f"{(SECOND.key[0] + 1) % 256:02x}"
    upper = stem.upper() + path.suffix
    assert upper != name
    where = place.format(other=other, first=stem[:2], second=stem[2:4], name=name, upper=upper)
    moved = path.parent.parent / where
    moved.parent.mkdir(exist_ok=True)
    path.rename(moved)
    report, shelf = opened(store)
    assert (report.entries, report.missing, report.adopted, report.unusable) == (2, 1, 0, 0)
    assert SECOND.key not in shelf and moved.exists()


@pytest.mark.parametrize(
    "damage", ["nbytes='some'", "hits=9e999", "nbytes=9e999", "used_s='never'", "kind=7"]
)
def test_a_row_that_cannot_be_has_the_catalog_made_anew(damage: str, store: Path) -> None:
    with sqlite3.connect(store / CATALOG) as db:
        db.execute(f"UPDATE entries SET {damage} WHERE key=?", (SECOND.key,))
    db.close()
    report, _ = opened(store)
    assert (report.rebuilt, report.entries, report.adopted) == (True, 3, 3)
    assert set(rows(store)) == {FIRST.key, SECOND.key, OTHER.key}
