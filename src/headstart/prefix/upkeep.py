"""Changes to a store that no server owns: removing, tidying up, taking in.

The order on disk is the writer's: a row goes before its file and comes after it, so a store that this
was broken off in opens as after a kill.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from headstart.errors import ConfigError
from headstart.prefix.archive import Member
from headstart.prefix.catalog import Catalog, Listed
from headstart.prefix.inventory import Inventory, owner, read_store, require_store
from headstart.prefix.opening import Progress, open_store
from headstart.prefix.report import Reason
from headstart.prefix.shelf import OnDisk, Shelf
from headstart.prefix.ssd import SsdFiles
from headstart.prefix.tree import Entry

_ANY_BLOCK_TOKENS = 0
"""Whatever the block size of the server was that wrote them."""


@dataclass(frozen=True)
class Removed:
    """What has gone from the disk."""

    entries: int = 0
    nbytes: int = 0

    def __add__(self, other: Removed) -> Removed:
        return Removed(self.entries + other.entries, self.nbytes + other.nbytes)


@dataclass(frozen=True)
class Added:
    """What was taken in: entries written, their bytes, and entries that were here already."""

    entries: int
    nbytes: int
    present: int


class OwnedStore:
    """A store this process owns, in the order that a server's start brings it into. Made by `owned`.

    `before`: what was there before that. `swept`: what the start has removed: temporary and damaged
    files and entries without what they need.
    """

    def __init__(self, files: SsdFiles, catalog: Catalog, shelf: Shelf, before: Inventory) -> None:
        self.files = files
        self.before = before
        self._catalog = catalog
        self._shelf = shelf
        self.swept = _gone_since(before, shelf)

    @property
    def used_bytes(self) -> int:
        """What the store counts against a server's budget."""
        return self._shelf.used_bytes

    def __len__(self) -> int:
        return len(self._shelf)

    def remove_unusable(self, further: Iterable[Path] = ()) -> Removed:
        """Removes what a start leaves alone: entries of other format versions, what was moved aside,
        and the files at `further`."""
        versions = [file.path for file in self.before.unusable if file.reason is Reason.UNREADABLE_VERSION]
        removed = Removed()
        for path in [*versions, *self.before.aside, *further]:
            with suppress(FileNotFoundError):
                removed += _clear(path)
        return removed

    def evict_to(self, limit_bytes: int) -> Removed:
        """Removes what was used longest ago, as a server with that budget would."""
        return self._remove(self._shelf.evict_to(limit_bytes))

    def remove_conversation(self, leaf: bytes) -> Removed:
        """Removes a leaf, and what before it no other conversation needs."""
        node = self._shelf.block(leaf)
        gone: list[Entry] = []
        while node is not None and node.level > 0 and not node.children:
            parent = node.parent
            gone += self._shelf.drop(node)
            node = parent
        return self._remove(gone)

    def remove_namespace(self, namespace: bytes) -> Removed:
        """Removes everything in a namespace."""
        root = self._shelf.tree.roots.get(namespace)
        gone: list[Entry] = []
        while root is not None and root.children:
            first = root.children if not isinstance(root.children, list) else root.children[0]
            gone += self._shelf.drop(first)
        return self._remove(gone)

    def add(self, members: Iterable[Member]) -> Added:
        """Takes in what is not here yet. Raises OSError where it cannot be written."""
        written = nbytes = present = 0
        for member in members:
            head = member.head
            if self._shelf.add(head, member.nbytes) is None:
                present += 1
                continue
            size = self.files.write(head, member.tensors)
            self._catalog.put([Listed.of(head.key, head, size, 0, min(member.used_s, time.time()))])
            written, nbytes = written + 1, nbytes + size
            for replaced in self._shelf.take_superseded():
                self._unlink(replaced.namespace, replaced.key)
        self._catalog.commit()
        return Added(written, nbytes, present)

    def _remove(self, entries: Iterable[Entry]) -> Removed:
        places = [entry.payload for entry in entries if isinstance(entry.payload, OnDisk)]
        nbytes = 0
        for where in places:
            known = self.before.entries.get(where.key)
            nbytes += 0 if known is None else known.nbytes
            self._unlink(where.namespace, where.key)
        return Removed(len(places), nbytes)

    def _unlink(self, namespace: bytes, key: bytes) -> None:
        self._catalog.remove([key])
        self._catalog.commit()
        self.files.remove(namespace, key)
        path = self.files.path(namespace, key)
        for folder in (path.parent, path.parent.parent):
            with suppress(OSError):
                folder.rmdir()


@contextmanager
def owned(directory: Path, *, create: bool = False, progress: Progress | None = None) -> Iterator[OwnedStore]:
    """The store at `directory`, owned by this process meanwhile. `create`: made where there is none.

    Raises ConfigError where there is none, or a server owns it.
    """
    if not create:
        require_store(directory)
    process = owner(directory)
    if process is not None:
        raise ConfigError(
            f"the cache at {directory} is in use by process {process}; stop that server first (ls, stat, "
            "verify and export work beside it)"
        )
    files = SsdFiles(directory)
    try:
        before = read_store(directory)
        shelf = Shelf(_ANY_BLOCK_TOKENS)
        _, catalog = open_store(files, shelf, progress or (lambda *_: None), check_sizes=True)
        assert catalog is not None
        try:
            yield OwnedStore(files, catalog, shelf, before)
        finally:
            catalog.close()
    finally:
        files.close()


def _gone_since(before: Inventory, shelf: Shelf) -> Removed:
    stray = [entry.nbytes for key, entry in before.entries.items() if key not in shelf]
    damaged = [file for file in before.unusable if file.reason is Reason.CORRUPT]
    sizes = [*stray, *(file.nbytes for file in damaged), *before.temporary.values()]
    return Removed(len(sizes), sum(sizes))


def _clear(path: Path) -> Removed:
    """Removes whatever lies at `path`, a place inside a store."""
    nbytes = path.lstat().st_size
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink()
    return Removed(1, nbytes)
