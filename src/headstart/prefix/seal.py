"""The seal of a store that was closed in order: proof that nothing in it was changed since.

A seal is a digest of the catalog's bytes and of the names and times of all folders. A folder's time changes
with every file that comes, goes or is renamed, so while the seal holds, the catalog's rows are those that
this program wrote and every file they tell of is there. Then a store opens without looking for its files.
Whoever opens a store breaks its seal first: after a kill there is none.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from blake3 import blake3

from headstart.prefix.listing import hex_folders
from headstart.prefix.ssd import CATALOG

SEAL = "sealed"
UNFINISHED = ".tmp-sealed"
_STEP_BYTES = 16 << 20


def seal(directory: Path) -> None:
    """Seals the store at `directory`. Raises OSError, and ValueError where its catalog is still open."""
    temporary = directory / UNFINISHED
    temporary.unlink(missing_ok=True)
    file = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        os.write(file, _digest(directory).encode())
    finally:
        os.close(file)
    temporary.rename(directory / SEAL)


def holds(directory: Path) -> bool:
    """Whether the store is as it was when it was sealed."""
    try:
        return (directory / SEAL).read_text("ascii") == _digest(directory)
    except (OSError, ValueError):
        return False


def break_seal(directory: Path) -> None:
    """Takes the seal away, before anything is changed, and one that was not finished. Raises OSError."""
    (directory / SEAL).unlink(missing_ok=True)
    (directory / UNFINISHED).unlink(missing_ok=True)


def _digest(directory: Path) -> str:
    hasher = blake3(b"headstart store 1", max_threads=blake3.AUTO)
    with (directory / CATALOG).open("rb", buffering=0) as file:
        while piece := file.read(_STEP_BYTES):
            hasher.update(piece)
    if (directory / f"{CATALOG}-wal").exists():
        raise ValueError("the catalog was not closed")
    for path, changed_ns in sorted(_folder_times(directory)):
        hasher.update(f"{path} {changed_ns}\n".encode())
    return hasher.hexdigest()


def _folder_times(directory: Path) -> Iterator[tuple[str, int]]:
    for _, outer in hex_folders(directory):
        for folder in (outer, *(inner for _, inner in hex_folders(outer))):
            yield str(folder.relative_to(directory)), folder.lstat().st_mtime_ns
