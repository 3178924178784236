"""The list of what an SSD store holds, in SQLite. A cache of the files: lost or damaged, it is made
anew from them.

One row an entry, with a checksum of all that says which state it is: one damaged row condemns the catalog.
That is cheap, and no proof of anything; whoever uses an entry checks its key. The last use and the number of
uses are known only here; a rebuilt catalog has the files' times instead. Journal mode is WAL, so a killed
process leaves a catalog that opens.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple
from zlib import crc32

from headstart.prefix.blockfile import EntryKind, Head

SCHEMA_VERSION = 2
_CHECKPOINT_PAGES = 256
_32_BITS = 0xFFFFFFFF
_SCHEMA = """
CREATE TABLE IF NOT EXISTS namespaces (id INTEGER PRIMARY KEY, name BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS entries (
    key BLOB PRIMARY KEY,
    namespace INTEGER NOT NULL,
    kind INTEGER NOT NULL,
    parent BLOB NOT NULL,
    level INTEGER NOT NULL,
    tokens BLOB NOT NULL,
    canonical INTEGER NOT NULL,
    stop TEXT NOT NULL,
    nbytes INTEGER NOT NULL,
    hits INTEGER NOT NULL,
    used_s REAL NOT NULL,
    checksum INTEGER NOT NULL
);
"""
"""A row has a rowid, so that rows lie packed in the order they came; in a tree by key, each of this size
would take an overflow page of its own."""
_KINDS = (EntryKind.BLOCK, EntryKind.CHECKPOINT, EntryKind.LOGITS)
_COLUMNS = "key, namespace, kind, parent, level, tokens, canonical, stop, nbytes, hits, used_s, checksum"


class CatalogDamagedError(Exception):
    """The catalog cannot be used and has to be made anew from the files."""


class Listed(NamedTuple):
    """One stored entry: its key, what it is (see `Head`), the size of its file, how often it was used, and
    the Unix time of its last use. Flat, because a large store makes many at its start."""

    key: bytes
    kind: EntryKind
    namespace: bytes
    parent: bytes
    tokens: bytes
    level: int
    canonical: bool
    stop: str
    nbytes: int
    hits: int
    used_s: float

    @classmethod
    def of(cls, key: bytes, head: Head, nbytes: int, hits: int, used_s: float) -> Listed:
        return cls(key, *head, nbytes, hits, used_s)

    @property
    def head(self) -> Head:
        return Head(*self[1:8])


class Catalog:
    """The open catalog of one store. One thread at a time; writes wait for `commit`.

    `read_only` reads a copy, so that nothing is made or changed beside the catalog, SQLite's own
    files included. Raises CatalogDamagedError where the file is not a catalog of this version or is
    damaged.
    """

    def __init__(self, path: Path, *, read_only: bool = False) -> None:
        self._namespaces: dict[bytes, int] = {}
        self._copy: tempfile.TemporaryDirectory[str] | None = None
        try:
            if read_only:
                self._copy = tempfile.TemporaryDirectory(prefix="headstart-catalog-")
                path = _copied(path, Path(self._copy.name))
            else:
                os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
                path.chmod(0o600)
            self._db = sqlite3.connect(path, check_same_thread=False)
        except (sqlite3.Error, OSError) as error:
            self._drop_copy()
            raise CatalogDamagedError(str(error)) from error
        try:
            self._prepare()
            self._check_version()
            for number, name in self._db.execute("SELECT id, name FROM namespaces"):
                self._namespaces[name] = number
        except (sqlite3.Error, CatalogDamagedError) as error:
            self._db.close()
            self._drop_copy()
            raise CatalogDamagedError(str(error)) from error

    def _prepare(self) -> None:
        self._db.execute("PRAGMA journal_mode=WAL")
        self._db.execute("PRAGMA synchronous=NORMAL")
        self._db.execute(f"PRAGMA wal_autocheckpoint={_CHECKPOINT_PAGES}")
        (version,) = self._db.execute("PRAGMA user_version").fetchone()
        (tables,) = self._db.execute("SELECT count(*) FROM sqlite_master").fetchone()
        if not version and not tables:
            self._db.executescript(_SCHEMA)
            self._db.execute(f"PRAGMA user_version={SCHEMA_VERSION}")
            self._db.commit()

    def _check_version(self) -> None:
        (version,) = self._db.execute("PRAGMA user_version").fetchone()
        if version != SCHEMA_VERSION:
            raise CatalogDamagedError(f"catalog version {version}, this version reads {SCHEMA_VERSION}")

    def listed(self) -> Iterator[Listed]:
        """Every entry, in no order that means anything. Raises CatalogDamagedError."""
        names = {number: name for name, number in self._namespaces.items()}
        try:
            rows = self._db.execute(f"SELECT {_COLUMNS} FROM entries")
            for key, space, kind, parent, level, tokens, canonical, stop, nbytes, hits, used_s, told in rows:
                if _checksum(key, parent, tokens, (level, space, kind, canonical)) != told:
                    raise CatalogDamagedError("a row is not what was written")
                name, what = names[space], _KINDS[kind]
                yield Listed(
                    key,
                    what,
                    name,
                    parent,
                    tokens,
                    level,
                    bool(canonical),
                    stop,
                    int(nbytes),
                    int(hits),
                    float(used_s),
                )
        except (sqlite3.Error, LookupError, TypeError, ValueError, OverflowError) as error:
            raise CatalogDamagedError(str(error)) from error

    def put(self, entries: Iterable[Listed]) -> None:
        """Adds or replaces rows."""
        self._db.executemany(
            f"INSERT OR REPLACE INTO entries ({_COLUMNS}) VALUES (?,?,?,?,?,?,?,?,?,?,?,?)",
            (self._row(entry) for entry in entries),
        )

    def _row(self, entry: Listed) -> tuple[object, ...]:
        head = entry.head
        space = self._namespaces.get(head.namespace)
        if space is None:
            cursor = self._db.execute("INSERT INTO namespaces (name) VALUES (?)", (head.namespace,))
            assert cursor.lastrowid is not None
            space = self._namespaces[head.namespace] = cursor.lastrowid
        kind = _KINDS.index(head.kind)
        return (
            entry.key,
            space,
            kind,
            head.parent,
            head.level,
            head.tokens,
            int(head.canonical),
            head.stop,
            entry.nbytes,
            entry.hits,
            entry.used_s,
            _checksum(entry.key, head.parent, head.tokens, (head.level, space, kind, head.canonical)),
        )

    def remove(self, keys: Iterable[bytes]) -> None:
        self._db.executemany("DELETE FROM entries WHERE key=?", ((key,) for key in keys))

    def touch(self, uses: Iterable[tuple[bytes, int, float]]) -> None:
        """Notes uses: (key, hits, used_s)."""
        self._db.executemany(
            "UPDATE entries SET hits=?, used_s=? WHERE key=?",
            ((hits, used_s, key) for key, hits, used_s in uses),
        )

    def commit(self) -> None:
        self._db.commit()

    def close(self) -> None:
        """Commits and lets go, even where committing fails. Raises sqlite3.Error then."""
        try:
            self._db.commit()
        finally:
            self._db.close()
            self._drop_copy()

    def _drop_copy(self) -> None:
        if self._copy is not None:
            self._copy.cleanup()


def _checksum(key: bytes, parent: bytes, tokens: bytes, numbers: tuple[int, int, int, int]) -> int:
    """CRC-32 of key, parent and tokens, begun with level, namespace, kind and canonical."""
    level, space, kind, canonical = numbers
    begin = (level << 16) + (space << 3) + (kind << 1) + canonical & _32_BITS
    return crc32(tokens, crc32(parent, crc32(key, begin)))


def _copied(path: Path, folder: Path) -> Path:
    """A copy of the catalog at `path` and of its log. One that was torn by a process that wrote
    meanwhile shows as damaged, or has rows that the files do not bear out."""
    for name in (path.name, path.name + "-wal"):
        if path.with_name(name).exists():
            shutil.copyfile(path.with_name(name), folder / name)
    return folder / path.name
