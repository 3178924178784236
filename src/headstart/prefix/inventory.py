"""What an SSD store holds, read without owning it: a server may be writing it meanwhile."""

from __future__ import annotations

import fcntl
import os
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from headstart.errors import ConfigError
from headstart.prefix.catalog import Catalog, CatalogDamagedError, Listed
from headstart.prefix.keys import TENANT_BYTES
from headstart.prefix.listing import SUFFIX, FoundFile
from headstart.prefix.report import Reason
from headstart.prefix.ssd import ASIDE, CATALOG, LOCK, SsdFiles, StoreFileError


class CatalogState(StrEnum):
    """`OK`: it lists what there is. `BEHIND`: files and rows differ, as after a kill, or while a server
    writes; the next start puts that right. `MISSING`, `DAMAGED`: the next start makes it anew."""

    OK = "ok"
    BEHIND = "behind"
    MISSING = "missing"
    DAMAGED = "damaged"


@dataclass(frozen=True)
class Unusable:
    """A file that no server would use, and why."""

    path: Path
    reason: Reason
    detail: str
    nbytes: int


@dataclass(frozen=True)
class Inventory:
    """Everything in one store, by key. `missing`: rows whose file is gone or another; `unlisted`: files
    without a row; `temporary`: files that broken-off writes have left, and their sizes; `aside`: things
    moved out of an entry's place."""

    directory: Path
    entries: dict[bytes, Listed]
    catalog: CatalogState
    missing: tuple[bytes, ...]
    unlisted: tuple[bytes, ...]
    unusable: tuple[Unusable, ...]
    temporary: dict[Path, int]
    aside: tuple[Path, ...]

    @property
    def nbytes(self) -> int:
        return sum(entry.nbytes for entry in self.entries.values())


def is_store(directory: Path) -> bool:
    """Whether `directory` looks like a store: a lock, a catalog, or folders named as namespaces are."""
    if not directory.is_dir():
        return False
    if (directory / LOCK).is_file() or (directory / CATALOG).is_file():
        return True
    return bool(SsdFiles(directory, read_only=True).scan().entries)


def require_store(directory: Path) -> None:
    """Raises ConfigError where `directory` is not there or is something else."""
    if not directory.is_dir():
        raise ConfigError(
            f"there is no cache at {directory}: no server has written one there yet, or it is elsewhere "
            "(--ssd-cache-dir, --base-path)"
        )
    if not is_store(directory):
        raise ConfigError(
            f"{directory} is not a headstart cache: it has no {LOCK}, no {CATALOG} and no entries; give the "
            "directory that the server uses (--ssd-cache-dir)"
        )


def read_store(directory: Path) -> Inventory:
    """What is in the store at `directory`. Changes nothing. Raises ConfigError where there is none."""
    require_store(directory)
    try:
        return _read(directory)
    except OSError as error:
        raise ConfigError(f"the cache at {directory} cannot be read: {error.strerror}") from error


def _read(directory: Path) -> Inventory:
    files = SsdFiles(directory, read_only=True)
    state, known = _catalog(directory / CATALOG)
    scan = files.scan()
    found = {(file.namespace, file.key): file for file in scan.entries}
    entries = {key: entry for key, entry in known.items() if _sound(entry, found.get((entry.namespace, key)))}
    missing = tuple(key for key in known if key not in entries)
    unusable = []
    unlisted = []
    for (namespace, key), file in found.items():
        if key in entries and entries[key].namespace == namespace:
            continue
        read = _head(files, file)
        if isinstance(read, Unusable):
            unusable.append(read)
        elif read is not None:
            entries[key] = read
            unlisted.append(key)
    if state is CatalogState.OK and (missing or unlisted or unusable):
        state = CatalogState.BEHIND
    return Inventory(
        directory,
        entries,
        state,
        missing,
        tuple(unlisted),
        tuple(unusable),
        temporary={path: _size(path) for path in sorted(scan.temporary)},
        aside=tuple(sorted(directory.glob(f"*/*/{ASIDE}*"))),
    )


def _catalog(path: Path) -> tuple[CatalogState, dict[bytes, Listed]]:
    if not path.exists():
        return CatalogState.MISSING, {}
    try:
        catalog = Catalog(path, read_only=True)
        known = {entry.key: entry for entry in catalog.listed()}
        catalog.close()
    except CatalogDamagedError:
        return CatalogState.DAMAGED, {}
    return CatalogState.OK, known


def _head(files: SsdFiles, file: FoundFile) -> Listed | Unusable | None:
    """What a file without a row is; None where it has gone meanwhile."""
    try:
        head, size = files.head_of(file)
        return Listed.of(file.key, head, size, 0, file.modified_s)
    except FileNotFoundError:
        return None
    except StoreFileError as error:
        return Unusable(file.path, error.reason, str(error), max(0, file.nbytes))


def _sound(row: Listed, file: FoundFile | None) -> bool:
    """Whether a row's file is there with the size it says, and its key is that of its tokens."""
    try:
        return file is not None and file.nbytes == row.nbytes and row.head.key == row.key
    except TypeError:  # a damaged catalog may hold anything
        return False


def _size(path: Path) -> int:
    try:
        return path.lstat().st_size
    except FileNotFoundError:
        return 0


def short_name(namespace: bytes) -> str:
    """The first hex digits of what tells the namespaces of one tenant apart."""
    return namespace[TENANT_BYTES:][:4].hex() or namespace[:4].hex()


def file_name(entry: Listed) -> str:
    """The name of an entry in an archive: its namespace and its key."""
    return f"{entry.namespace.hex()}/{entry.key.hex()}{SUFFIX}"


def owner(directory: Path) -> int | None:
    """The process that owns the store; None where none does, or it cannot be told."""
    path = directory / LOCK
    try:
        number = int(path.read_text("ascii"))
        os.kill(number, 0)  # only where such a process lives is the lock itself tried
        with path.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):
        return number
    except (OSError, ValueError):
        return None
    return None
