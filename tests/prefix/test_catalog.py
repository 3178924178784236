"""The catalog: rows in, rows out, whatever the process or the file goes through."""

from __future__ import annotations

import random
import sqlite3
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from headstart.prefix.blockfile import EntryKind, Head
from headstart.prefix.catalog import Catalog, CatalogDamagedError, Listed
from headstart.prefix.ssd import disk_bytes
from tests.prefix.disk import listing


def row(number: int, *, namespace: bytes = b"n" * 48, level: int = 1, used_s: float = 5.5) -> Listed:
    head = Head(EntryKind.BLOCK, namespace, namespace, number.to_bytes(4, "big"), level, number % 2 == 0)
    return Listed.of(head.key, head, 100 + number, number, used_s)


MARK_HEAD = Head(EntryKind.CHECKPOINT, b"o" * 48, b"p" * 32, b"abcd", 3, True, "grid")
MARK = Listed.of(MARK_HEAD.key, MARK_HEAD, 9, 0, 1.0)


def test_rows_come_back(tmp_path: Path) -> None:
    catalog = Catalog(tmp_path / "c")
    rows = [row(3, level=3), row(1), MARK, row(2, level=2, namespace=b"o" * 48)]
    catalog.put(rows)
    catalog.close()
    catalog = Catalog(tmp_path / "c")
    found = list(catalog.listed())
    assert sorted(found, key=lambda r: r.key) == sorted(rows, key=lambda r: r.key)
    catalog.close()


def test_a_row_takes_the_place_of_the_one_before(tmp_path: Path) -> None:
    catalog = Catalog(tmp_path / "c")
    catalog.put([row(1)])
    catalog.put([row(1)._replace(nbytes=7, hits=3)])
    assert list(catalog.listed()) == [row(1)._replace(nbytes=7, hits=3)]
    catalog.close()


def test_what_was_committed_survives_a_kill_and_most_losses_of_power(tmp_path: Path) -> None:
    catalog = Catalog(tmp_path / "c")
    values = [
        catalog._db.execute(f"PRAGMA {name}").fetchone()[0]
        for name in ("journal_mode", "synchronous", "wal_autocheckpoint")
    ]
    assert values == ["wal", 1, 256]
    catalog.close()


def test_closing_lets_go_even_where_committing_fails(tmp_path: Path) -> None:
    catalog = Catalog(tmp_path / "c")
    catalog.put([row(1)])
    inner = catalog._db
    catalog._db = Refusing(inner)  # type: ignore[assignment]
    with pytest.raises(sqlite3.OperationalError, match="full"):
        catalog.close()
    with pytest.raises(sqlite3.ProgrammingError, match="closed"):
        inner.execute("SELECT 1")


class Refusing:
    """A database whose medium is full."""

    def __init__(self, inner: sqlite3.Connection) -> None:
        self.close = inner.close

    def commit(self) -> None:
        raise sqlite3.OperationalError("database or disk is full")


def test_uses_and_removals_are_kept(tmp_path: Path) -> None:
    catalog = Catalog(tmp_path / "c")
    catalog.put([row(1), row(2), row(3)])
    catalog.touch([(row(2).key, 7, 99.5), (b"unknown", 1, 1.0)])
    catalog.remove([row(3).key, b"unknown"])
    catalog.close()
    catalog = Catalog(tmp_path / "c")
    found = {one.key: (one.hits, one.used_s) for one in catalog.listed()}
    assert found == {row(1).key: (1, 5.5), row(2).key: (7, 99.5)}
    catalog.close()


def test_a_killed_process_leaves_what_was_committed(tmp_path: Path) -> None:
    code = (
        "import os, sys; from pathlib import Path; from headstart.prefix.catalog import Catalog\n"
        "from tests.prefix.test_catalog import row\n"
        "c = Catalog(Path(sys.argv[1])); c.put([row(1)]); c.commit(); c.put([row(2)]); os._exit(3)"
    )
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path / "c")], check=False)
    assert done.returncode == 3
    catalog = Catalog(tmp_path / "c")
    assert [one.key for one in catalog.listed()] == [row(1).key]
    catalog.close()


def test_only_the_owner_can_read_it(tmp_path: Path) -> None:
    catalog = Catalog(tmp_path / "c")
    catalog.put([row(1)])
    catalog.commit()
    names = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()}
    assert names == {"c": 0o600, "c-wal": 0o600, "c-shm": 0o600}
    catalog.close()
    (tmp_path / "c").chmod(0o644)
    Catalog(tmp_path / "c").close()
    assert stat.S_IMODE((tmp_path / "c").stat().st_mode) == 0o600


def garbage(path: Path) -> None:
    path.write_bytes(b"not a database" * 1000)


def beginning_of_one(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:100] + b"\xff" * 5000)


def other_version(path: Path) -> None:
    with sqlite3.connect(path) as db:
        db.execute("PRAGMA user_version=99")
    db.close()


def other_database(path: Path) -> None:
    path.unlink()
    with sqlite3.connect(path) as db:
        db.execute("CREATE TABLE other (x)")
    db.close()


def unknown_namespace(path: Path) -> None:
    with sqlite3.connect(path) as db:
        db.execute("DELETE FROM namespaces")
    db.close()


def text_for_a_number(path: Path) -> None:
    with sqlite3.connect(path) as db:
        db.execute("UPDATE entries SET kind='x'")
    db.close()


def no_version(path: Path) -> None:
    with sqlite3.connect(path) as db:
        db.execute("PRAGMA user_version=0")
    db.close()


def unknown_kind(path: Path) -> None:
    with sqlite3.connect(path) as db:
        db.execute("UPDATE entries SET kind=9")
    db.close()


def text_for_a_count(path: Path) -> None:
    with sqlite3.connect(path) as db:
        db.execute("UPDATE entries SET hits='x'")
    db.close()


def torn_page(path: Path) -> None:
    """The page of the rows; what is read before them is whole."""
    db = sqlite3.connect(path)
    (page,) = db.execute("SELECT rootpage FROM sqlite_master WHERE name='entries'").fetchone()
    (size,) = db.execute("PRAGMA page_size").fetchone()
    db.close()
    data = bytearray(path.read_bytes())
    data[(page - 1) * size : page * size] = b"\xff" * size
    path.write_bytes(data)


def a_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


@pytest.mark.parametrize(
    "damage",
    [
        garbage,
        beginning_of_one,
        other_version,
        no_version,
        other_database,
        unknown_namespace,
        text_for_a_number,
        unknown_kind,
        text_for_a_count,
        torn_page,
        a_folder,
    ],
)
@pytest.mark.parametrize("read_only", [False, True])
def test_a_damaged_catalog_says_so(damage: Callable[[Path], None], read_only: bool, tmp_path: Path) -> None:
    catalog = Catalog(tmp_path / "c")
    catalog.put([row(1)])
    catalog.close()
    damage(tmp_path / "c")
    with pytest.raises(CatalogDamagedError):
        list(Catalog(tmp_path / "c", read_only=read_only).listed())


@pytest.mark.parametrize("damage", [None, garbage, other_version])
def test_the_copy_that_is_read_does_not_stay(
    damage: Callable[[Path], None] | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copies = tmp_path / "copies"
    copies.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(copies))
    Catalog(tmp_path / "c").close()
    if damage is not None:
        damage(tmp_path / "c")
        with pytest.raises(CatalogDamagedError) as caught:
            Catalog(tmp_path / "c", read_only=True)
        assert list(copies.iterdir()) == [], caught
    else:
        reader = Catalog(tmp_path / "c", read_only=True)
        assert len(list(copies.iterdir())) == 1
        reader.close()
        assert list(copies.iterdir()) == []


def test_reading_alone_changes_nothing(tmp_path: Path) -> None:
    """Neither with the owner at work nor after it: what it has committed is seen."""
    catalog = Catalog(tmp_path / "c")
    catalog.put([row(1)])
    catalog.commit()
    for expected in (1, 2):
        before = listing(tmp_path)
        reader = Catalog(tmp_path / "c", read_only=True)
        assert len(list(reader.listed())) == expected
        reader.close()
        assert listing(tmp_path) == before
        if expected == 1:
            catalog.put([row(2)])
            catalog.close()
    assert [path.name for path in tmp_path.iterdir()] == ["c"]


def test_a_row_takes_no_more_room_than_the_budget_counts_for_it(tmp_path: Path) -> None:
    rng, entries, tokens = random.Random(1), 600, 256 * 4
    path = tmp_path / "c"
    catalog = Catalog(path)
    for _ in range(entries):
        head = Head(EntryKind.BLOCK, b"n" * 48, rng.randbytes(32), rng.randbytes(tokens), 1)
        catalog.put([Listed.of(head.key, head, 9, 0, 1.0)])
    catalog.close()
    assert path.stat().st_size <= entries * disk_bytes(0, tokens)
