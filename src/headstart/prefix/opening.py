"""Opening a store: what the catalog says is set against the files that are there.

A row counts where a file of its name is there; that is not looked at while the store's seal holds. Whether
its key is the digest of its parent and tokens, and what the file holds, is checked when it is used. A file
without a row is read for its head and adopted. What hangs on nothing goes. A file of another format version
is left alone: a newer headstart may own it.
"""

from __future__ import annotations

import gc
import logging
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from operator import attrgetter
from pathlib import Path

from headstart.errors import ConfigError
from headstart.prefix import seal
from headstart.prefix.catalog import Catalog, CatalogDamagedError, Listed
from headstart.prefix.listing import SUFFIX, FoundFile, Names
from headstart.prefix.report import Reason
from headstart.prefix.shelf import Shelf
from headstart.prefix.ssd import CATALOG, SsdFiles, StoreFileError

log = logging.getLogger(__name__)

_NOTHING: dict[str, bool] = {}

Progress = Callable[[str, int, int], None]
"""Called with what is being done, how many are done, and how many there are."""


@dataclass(frozen=True)
class OpenReport:
    """What opening a store found: entries in use, catalog rows whose file was gone or another,
    files the catalog did not know, files that could not be used (damaged ones were removed),
    temporary files removed; entries removed because what they hang on is not there; files of
    another format version, left where they are, and their size."""

    entries: int
    missing: int
    adopted: int
    unusable: int
    temporary: int
    rebuilt: bool
    open_s: float
    stray: int = 0
    other_version: int = 0
    other_version_bytes: int = 0


@dataclass
class _Read:
    """What reading files without a row has found."""

    listed: list[Listed] = field(default_factory=list)
    unusable: int = 0
    other_version: int = 0
    other_version_bytes: int = 0


def open_store(
    files: SsdFiles, shelf: Shelf, progress: Progress, *, check_sizes: bool = False
) -> tuple[OpenReport, Catalog | None]:
    """Fills `shelf` with what the store holds; answers the catalog, in step with it, unless the store
    is read only: then nothing in it is changed. `check_sizes`: a file that was cut short is found out
    now, not when it is read. Raises ConfigError where the store cannot be opened."""
    try:
        with _collector_at_rest():
            return _open(files, shelf, progress, check_sizes)
    except (OSError, sqlite3.Error, CatalogDamagedError) as error:
        raise ConfigError(
            f"the cache directory {files.directory} cannot be used: {error}; give another with "
            "--ssd-cache-dir, or turn the SSD cache off with --ssd-cache 0"
        ) from error


@contextmanager
def _collector_at_rest() -> Iterator[None]:
    """No search for garbage meanwhile: hundreds of thousands of objects are made here to stay, and looking
    through them again and again would cost a third of the time."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _open(
    files: SsdFiles, shelf: Shelf, progress: Progress, check_sizes: bool
) -> tuple[OpenReport, Catalog | None]:
    sealed = not check_sizes and seal.holds(files.directory)
    if not files.read_only:
        seal.break_seal(files.directory)
    names = Names({}, []) if sealed else files.names()
    for path in () if files.read_only else names.temporary:
        _discard(files, path)
    catalog, rows, damaged = _rows(files)
    known: list[Listed] = rows
    gone: list[bytes] = []
    if not sealed:
        known, gone = _borne_out(rows, names, files if check_sizes else None)
    new = list(names.entry_keys())
    read = _read_heads(files, new, progress)
    stray = shelf.load([*known, *read.listed])
    adopted = sorted((one for one in read.listed if one.key in shelf), key=attrgetter("level"))
    if catalog is not None:
        for listed in stray:
            _discard(files, files.path(listed.namespace, listed.key))
        catalog.remove([*gone, *(listed.key for listed in stray)])
        catalog.put(adopted)
        catalog.commit()
    if stray:
        log.warning("%d entries of the SSD cache were dropped: what they follow is not there.", len(stray))
    report = OpenReport(
        entries=len(shelf),
        missing=len(gone),
        adopted=len(adopted),
        unusable=read.unusable,
        temporary=0 if files.read_only else len(names.temporary),
        rebuilt=damaged or (bool(new) and not rows),
        open_s=0.0,
        stray=len(stray),
        other_version=read.other_version,
        other_version_bytes=read.other_version_bytes,
    )
    return report, catalog


def seal_if_known(files: SsdFiles, opened: OpenReport) -> None:
    """Seals a store that is closed and whose every file has a row, so that the next start need not look."""
    if opened.unusable or opened.stray or opened.other_version:
        return
    try:
        seal.seal(files.directory)
    except (OSError, ValueError) as error:
        log.info("The SSD cache was not sealed, its files are looked for at the next start: %s", error)


def _rows(files: SsdFiles) -> tuple[Catalog | None, list[Listed], bool]:
    """The catalog, its rows, and whether it was damaged; a damaged one is replaced by an empty one."""
    path = files.directory / CATALOG
    if files.read_only and not path.exists():
        return None, [], False
    try:
        catalog = Catalog(path, read_only=files.read_only)
        try:
            rows = list(catalog.listed())
        except CatalogDamagedError:
            catalog.close()
            raise
    except (CatalogDamagedError, sqlite3.Error) as error:
        log.warning("The catalog of the SSD cache is made anew from its files: %s", error)
        if files.read_only:
            return None, [], True
        for name in (path.name, path.name + "-wal", path.name + "-shm"):
            files.clear_path(path.with_name(name))
        return Catalog(path), [], True
    if files.read_only:
        catalog.close()
        return None, rows, False
    return catalog, rows, False


def _borne_out(
    rows: Iterable[Listed], names: Names, sizes: SsdFiles | None
) -> tuple[list[Listed], list[bytes]]:
    """Rows with a file (of their size, where `sizes` can tell), and the keys of the others. The names of the
    former are taken out of `names`."""
    known, gone = [], []
    for row in rows:
        here = names.entries.get(row.namespace, _NOTHING)
        name = row.key.hex() + SUFFIX
        if here.get(name) and (sizes is None or _of_its_size(row, sizes)):
            del here[name]
            known.append(row)
        else:
            gone.append(row.key)
    return known, gone


def _of_its_size(row: Listed, files: SsdFiles) -> bool:
    try:
        return files.found_at(row.namespace, row.key).nbytes == row.nbytes
    except FileNotFoundError:
        return False


def _read_heads(files: SsdFiles, new: Sequence[tuple[bytes, bytes]], progress: Progress) -> _Read:
    """What the files are that no row tells of. Damaged ones are removed, unless read only."""
    read = _Read()
    for count, (namespace, key) in enumerate(new):
        if count % 256 == 0 and len(new) > 256:
            progress("reading cache files", count, len(new))
        with suppress(FileNotFoundError):
            _read_head(files, files.found_at(namespace, key), read)
    if read.other_version:
        log.warning(
            "%d files of the SSD cache are of another format version and were left alone; "
            "`headstart cache gc` or removing the directory frees their room.",
            read.other_version,
        )
    return read


def _read_head(files: SsdFiles, file: FoundFile, read: _Read) -> None:
    """Adds what one file is to `read`. Raises FileNotFoundError."""
    try:
        head, size = files.head_of(file)
    except StoreFileError as error:
        if error.reason is Reason.UNREADABLE_VERSION:
            read.other_version += 1
            read.other_version_bytes += file.nbytes
            return
        read.unusable += 1
        log.warning("A file of the SSD cache cannot be used: %s", error)
        if error.reason is Reason.CORRUPT and not files.read_only:
            _discard(files, file.path)
    else:
        read.listed.append(Listed.of(file.key, head, size, 0, file.modified_s))


def _discard(files: SsdFiles, path: Path) -> None:
    try:
        files.clear_path(path)
    except OSError as error:
        log.warning("%s cannot be removed: %s", path, error.strerror)
