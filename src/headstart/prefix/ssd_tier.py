"""The SSD tier: what is saved, what is dropped, what is brought back, and how a store is opened.

Called from the engine thread, which never waits here: writing and reading are done by threads, and
`poll` takes in what they have finished.
"""

from __future__ import annotations

import errno
import logging
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from headstart.prefix.block import RowBytes, StateLayout
from headstart.prefix.blockfile import EntryKind, Head, plane_tensors
from headstart.prefix.catalog import Catalog, CatalogDamagedError, Listed
from headstart.prefix.keys import TokenBytes
from headstart.prefix.report import Reason
from headstart.prefix.shelf import OnDisk, Shelf, covering
from headstart.prefix.ssd import CATALOG, SsdFiles, StoreFileError
from headstart.prefix.tree import LOST, Entry, Mark, Match, Node
from headstart.prefix.writer import Remove, Save, Saved, Writer

log = logging.getLogger(__name__)

PAUSE_S = 30.0
"""How long saving rests after the disk refused a write, before it is tried again."""
READERS = 2
_BUDGET_CHECK_S = 1.0
Progress = Callable[[str, int, int], None]
"""Called with what is being done, how many are done, and how many there are."""


@dataclass(frozen=True)
class SsdSettings:
    """`budget_bytes`: most the files may take; less where the file system would be left with less
    than `reserve_bytes` free. `queue_bytes`: most that waits to be written."""

    directory: Path
    budget_bytes: int
    reserve_bytes: int = 2 << 30
    flush_interval_s: float = 1.0
    queue_bytes: int = 512 << 20
    read_only: bool = False


@dataclass(frozen=True)
class OpenReport:
    """What opening a store found: entries in use, catalog rows whose file was gone, files the
    catalog did not know, files that could not be used, temporary files removed."""

    entries: int
    missing: int
    adopted: int
    unusable: int
    temporary: int
    rebuilt: bool
    open_s: float


@dataclass
class SsdCounts:
    """Running totals."""

    saved: int = 0
    refused: int = 0
    write_errors: int = 0
    read_bytes: int = 0
    read_failures: int = 0


class SsdTier:
    """One open store for states of one `layout`. Raises ConfigError where it cannot be opened."""

    def __init__(
        self,
        settings: SsdSettings,
        layout: StateLayout,
        block_tokens: int,
        *,
        progress: Progress | None = None,
        files: SsdFiles | None = None,
    ) -> None:
        started_s = time.perf_counter()
        self.settings = settings
        self.counts = SsdCounts()
        self.files = files or SsdFiles(settings.directory, read_only=settings.read_only)
        self._layout = layout
        self.shelf = Shelf(block_tokens)
        self._unsaved: deque[Node | Mark] = deque()
        self._paused_until_s = 0.0
        self._limit = (0.0, settings.budget_bytes)
        self.opened, catalog = self._open(progress or (lambda *_: None))
        self.opened = replace(self.opened, open_s=time.perf_counter() - started_s)
        self._writer = None
        if catalog is not None:
            self._writer = Writer(
                self.files,
                catalog,
                queue_bytes=settings.queue_bytes,
                flush_interval_s=settings.flush_interval_s,
            )
        self.readers = ThreadPoolExecutor(READERS, thread_name_prefix="headstart-reader")
        self._make_room(0)

    # Opening

    def _open(self, progress: Progress) -> tuple[OpenReport, Catalog | None]:
        read_only = self.settings.read_only
        temporary = 0 if read_only else self.files.sweep_temporary()
        path = self.settings.directory / CATALOG
        catalog, known, rebuilt = self._catalog(path, read_only)
        found = {file.key: file for file in self.files.found()}
        missing = [key for key in known if key not in found]
        for key in missing:
            del known[key]
        new = [file for key, file in found.items() if key not in known]
        unusable = 0
        for count, file in enumerate(new):
            if count % 256 == 0 and len(new) > 256:
                progress("reading cache files", count, len(new))
            try:
                head, size = self.files.head_of(file)
            except StoreFileError as error:
                unusable += 1
                log.warning("A file of the SSD cache cannot be used: %s", error)
                if not read_only:
                    self._discard(file.path)
                continue
            known[file.key] = Listed(file.key, head, size, 0, file.path.stat().st_mtime)
        ordered = sorted(known.values(), key=lambda listed: listed.head.level)
        stray = self.shelf.load(ordered)
        if catalog is not None:
            for listed in stray:
                self.files.remove(listed.head.namespace, listed.key)
            catalog.remove([*missing, *(listed.key for listed in stray)])
            catalog.put(known[file.key] for file in new if file.key in known and file.key in self.shelf)
            catalog.commit()
        adopted = len(new) - unusable
        return OpenReport(len(self.shelf), len(missing), adopted, unusable, temporary, rebuilt, 0.0), catalog

    def _catalog(self, path: Path, read_only: bool) -> tuple[Catalog | None, dict[bytes, Listed], bool]:
        """The catalog and its entries; a damaged one is replaced by an empty one."""
        known: dict[bytes, Listed] = {}
        try:
            if read_only and not path.exists():
                return None, known, True
            catalog = Catalog(path, read_only=read_only)
            known.update((listed.key, listed) for listed in catalog.listed())
        except CatalogDamagedError as error:
            log.warning("The catalog of the SSD cache is made anew from its files: %s", error)
            known.clear()
            if read_only:
                return None, known, True
            for name in (path.name, path.name + "-wal", path.name + "-shm"):
                path.with_name(name).unlink(missing_ok=True)
            return Catalog(path), known, True
        if read_only:
            catalog.close()
            return None, known, False
        return catalog, known, not known

    def _discard(self, path: Path) -> None:
        """Removes what lies under an entry's name and is no entry."""
        try:
            self.files.clear_path(path)
        except OSError as error:
            log.warning("%s cannot be removed: %s", path, error.strerror)

    # Saving

    def save(self, entry: Node | Mark) -> None:
        """Saves an entry of the RAM tier, now or when there is room in the queue."""
        if self._writer is None or not self._try_save(entry):
            return
        if isinstance(entry, Node) and entry.parent is not None:
            for mark in covering(entry.parent, entry.tokens):
                self._try_save(mark)

    def _try_save(self, entry: Node | Mark, *, again: bool = False) -> bool:
        """Whether the entry is on its way or there already. What comes while others wait, waits too:
        a block is written after the one before it."""
        head = _head_of(entry)
        if head is None or entry.payload is None or entry.payload is LOST:
            return False
        if head.key in self.shelf:
            return True
        if time.monotonic() < self._paused_until_s or (self._unsaved and not again):
            return self._later(entry)
        tensors = self._tensors(entry)
        nbytes = sum(array.nbytes for array in tensors.values()) + len(head.tokens)
        if not self._make_room(nbytes):
            self.counts.refused += 1
            return False
        placed = self.shelf.add(head, nbytes)
        return placed is not None and self._offer(entry, Save(placed, head, tensors, nbytes, entry.hits))

    def _offer(self, entry: Node | Mark, save: Save) -> bool:
        assert self._writer is not None
        if not self._writer.offer(save):
            self.shelf.drop(save.entry)
            return self._later(entry)
        for key in self.shelf.take_superseded():
            self._writer.remove(Remove(save.head.namespace, key))
        return True

    def _later(self, entry: Node | Mark) -> bool:
        self._unsaved.append(entry)
        return False

    def _tensors(self, entry: Node | Mark) -> Mapping[str, Any]:
        if isinstance(entry, Node):
            rows = entry.payload
            assert isinstance(rows, RowBytes)
            return dict(plane_tensors([plane.name for plane in self._layout.planes], rows.planes))
        data = entry.payload
        assert isinstance(data, bytes)
        if entry.kind is None:
            return {"logits": np.frombuffer(data, np.float32)}
        return {"state": np.frombuffer(data, np.uint8)}

    def _make_room(self, nbytes: int) -> bool:
        """Drops what was used longest ago until `nbytes` more fit. False where they cannot."""
        limit = self.limit_bytes()
        for gone in self.shelf.evict_to(limit - nbytes):
            self._forget(gone)
        return self.shelf.used_bytes + nbytes <= limit

    def limit_bytes(self) -> int:
        """The budget, or less where the file system runs short: what is used and what is free, less
        the reserve."""
        now_s = time.monotonic()
        if now_s - self._limit[0] > _BUDGET_CHECK_S:
            free = self.files.free_bytes() - self.settings.reserve_bytes
            self._limit = (now_s, max(0, min(self.settings.budget_bytes, self.shelf.used_bytes + free)))
        return self._limit[1]

    def _forget(self, entry: Entry) -> None:
        assert isinstance(entry.payload, OnDisk)
        if self._writer is not None:
            self._writer.remove(Remove(entry.payload.namespace, entry.payload.key))

    def poll(self) -> None:
        """Takes in what has been written, and tries again what was put off. Cheap when idle."""
        if self._writer is None:
            return
        for answer in self._writer.answers():
            self._take_in(answer)
        if self._unsaved and time.monotonic() >= self._paused_until_s and self._writer.has_room:
            for _ in range(len(self._unsaved)):
                entry = self._unsaved.popleft()
                if not self._try_save(entry, again=True) and self._unsaved and self._unsaved[-1] is entry:
                    self._unsaved.rotate(1)
                    break

    def _take_in(self, answer: Saved) -> None:
        if answer.error is None:
            self.counts.saved += 1
            self.shelf.written(answer.save.head.key, answer.file_bytes)
            if self._paused_until_s:
                log.warning("The SSD cache is being written again.")
                self._paused_until_s = 0.0
            return
        self.counts.write_errors += 1
        for gone in self.shelf.drop(answer.save.entry):
            self._forget(gone)
        if not self._paused_until_s:
            why = answer.error.strerror or str(answer.error)
            full = answer.error.errno in (errno.ENOSPC, errno.EDQUOT)
            hint = "free some space or lower --ssd-cache; " if full else ""
            log.warning("The SSD cache cannot be written (%s): %suntil then RAM alone is used.", why, hint)
        self._paused_until_s = time.monotonic() + PAUSE_S

    def flush(self, *, timeout_s: float, progress: Callable[[int], None] | None = None) -> int:
        """Writes what is queued and put off; answers how many entries could not be written in time."""
        if self._writer is None:
            return 0
        deadline_s = time.monotonic() + timeout_s
        while True:
            done = self._writer.flush(timeout_s=max(0.0, deadline_s - time.monotonic()), progress=progress)
            self.poll()
            if not done or not self._unsaved or time.monotonic() < self._paused_until_s:
                return self._writer.queued + len(self._unsaved)

    def close(self) -> None:
        """Ends the threads and lets go of the store. What was not flushed is written first."""
        self.readers.shutdown(wait=True, cancel_futures=True)
        if self._writer is not None:
            self._writer.close()
        self.files.close()

    # Reading

    def match(self, namespace: bytes, prompt: TokenBytes) -> Match:
        return self.shelf.match(namespace, prompt)

    def read(self, entry: Node | Mark) -> RowBytes | bytes:
        """The state of an entry, every byte checked. Any thread. Raises StoreFileError."""
        where = entry.payload
        if not isinstance(where, OnDisk):
            raise StoreFileError(Reason.EVICTED, "the entry was dropped meanwhile")
        head, tensors = self.files.read(where.namespace, where.key, where.kind)
        if head.kind is EntryKind.LOGITS:
            return tensors["logits"].tobytes()
        if head.kind is EntryKind.CHECKPOINT:
            return tensors["state"].tobytes()
        try:
            planes = tuple(tensors[f"plane.{plane.name}"] for plane in self._layout.planes)
        except KeyError as error:
            raise StoreFileError(Reason.CORRUPT, f"{where.key.hex()} has no tensor {error}") from error
        rows = RowBytes(planes)
        want = [(len(head.tokens) // 4, plane.row_bytes) for plane in self._layout.planes]
        if [plane.shape for plane in planes] != want:
            raise StoreFileError(
                Reason.CORRUPT, f"{where.key.hex()} has planes of another shape than the model's"
            )
        return rows

    def lose(self, entry: Node | Mark) -> None:
        """The file of an entry cannot be used: it goes, and with it what needs it."""
        self.counts.read_failures += 1
        for gone in self.shelf.drop(entry):
            self._forget(gone)

    def used(self, entries: list[Entry]) -> None:
        """Counts one use of each of `entries`, in the catalog too."""
        self.shelf.touch(entries)
        if self._writer is not None:
            for entry in entries:
                if isinstance(entry.payload, OnDisk):
                    self._writer.note_use(entry.payload.key, entry.hits, entry.clock)


def _head_of(entry: Node | Mark) -> Head | None:
    """What a RAM entry is on disk; None for one that is gone."""
    parent = entry.parent if isinstance(entry, Node) else entry.node
    if parent is None:
        return None
    root = parent
    while root.parent is not None:
        root = root.parent
    if isinstance(entry, Node):
        return Head(EntryKind.BLOCK, root.key, parent.key, entry.tokens, entry.level, entry.canonical)
    kind = EntryKind.LOGITS if entry.kind is None else EntryKind.CHECKPOINT
    stop = "" if entry.kind is None else entry.kind.value
    return Head(kind, root.key, parent.key, entry.tail, parent.level, entry.canonical, stop)


def walk(root: Node) -> Iterator[Node]:
    """Every block below `root`, parents first."""
    to_visit = [root]
    while to_visit:
        node = to_visit.pop()
        if node.level:
            yield node
        children = node.children
        to_visit += [children] if isinstance(children, Node) else list(children or ())
