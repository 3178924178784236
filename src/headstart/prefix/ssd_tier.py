"""The SSD tier: what is saved, what is dropped, what is brought back, and how a store is opened.

Called from the engine thread, which never waits here: writing and reading are done by threads, and
`poll` takes in what they have finished.
"""

from __future__ import annotations

import errno
import logging
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from headstart.prefix.block import RowBytes, StateLayout
from headstart.prefix.blockfile import EntryKind, Head, file_bytes, plane_tensors
from headstart.prefix.keys import TOKEN_BYTES, TokenBytes
from headstart.prefix.opening import OpenReport, Progress, open_store, seal_if_known
from headstart.prefix.report import Reason
from headstart.prefix.shelf import OnDisk, Shelf, covering
from headstart.prefix.ssd import SsdFiles, StoreFileError, disk_bytes
from headstart.prefix.ssd_counts import SsdCounts, SsdStatistics
from headstart.prefix.stops import StopKind
from headstart.prefix.tree import LOST, Entry, Mark, Match, Node, child_starting_with
from headstart.prefix.writer import Remove, Save, Saved, Writer

__all__ = ["OpenReport", "Progress", "SsdSettings", "SsdTier", "walk"]

log = logging.getLogger(__name__)

PAUSE_S = 30.0
"""How long saving rests after the disk refused a write, before it is tried again."""
READERS = 4
"""Threads that read and check: fresh memory and checksums cost as much time as the disk."""
_BUDGET_CHECK_S = 1.0
_SMALL = 1024
_REMEMBERED = 16384
ONE_ENTRY_ONLY = frozenset(
    {errno.EISDIR, errno.ENOTDIR, errno.ENOTEMPTY, errno.EEXIST, errno.ELOOP, errno.ENAMETOOLONG, errno.EFBIG}
)
"""Errors of a write that say nothing about the next one."""


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
        self._unsaved: OrderedDict[Node | Mark, None] = OrderedDict()
        self._most_unsaved = _SMALL
        self._made_room: OrderedDict[bytes, None] = OrderedDict()
        self._fell_with_parent: set[Entry] = set()
        self._failed_once: set[bytes] = set()
        self.canonical_only = False
        """Only canonical rows are ever used, so no others are saved."""
        self._paused_until_s = 0.0
        self._limit = (-1.0 - _BUDGET_CHECK_S, settings.budget_bytes)
        opened, catalog = open_store(self.files, self.shelf, progress or (lambda *_: None))
        self.opened = replace(opened, open_s=time.perf_counter() - started_s)
        self._writer = None
        if catalog is not None:
            self._writer = Writer(
                self.files,
                catalog,
                queue_bytes=settings.queue_bytes,
                flush_interval_s=settings.flush_interval_s,
            )
        self.readers = ThreadPoolExecutor(READERS, thread_name_prefix="headstart-reader")
        if self._writer is not None:
            self._make_room(0)

    # Saving

    def save(self, entry: Node | Mark) -> None:
        """Saves an entry of the RAM tier, and the marks whose rows it has, now or when there is room
        in the queue. A checkpoint is worth the partial block it stands in, which is small beside it:
        without it, a kill would take all that a recurrent model could have resumed with."""
        if isinstance(entry, Mark) and entry.node is not None and entry.kind not in (None, StopKind.GRID):
            below = child_starting_with(entry.node, entry.tail)
            if below is not None:
                self._save(below)
        self._save(entry)

    def save_rest(self, block: Node) -> None:
        """Saves a block that has been in RAM for some time, unless it was on the SSD and had to go for
        others: where RAM holds more than the SSD may, it would go there and back for ever."""
        if block.key not in self._made_room:
            self._save(block)

    def _save(self, entry: Node | Mark, *, again: bool = False) -> None:
        if self._writer is None or not self._try_save(entry, self._writer, again):
            return
        if isinstance(entry, Node) and entry.parent is not None:
            for mark in covering(entry.parent, entry.tokens):
                self._try_save(mark, self._writer, again)

    def _try_save(self, entry: Node | Mark, writer: Writer, again: bool) -> bool:
        """Whether the entry is on its way or there already. What comes while others wait, waits too:
        a block is written after the one before it."""
        if isinstance(entry, Node) and entry.key in self.shelf:
            return True
        head = _head_of(entry)
        unusable = entry.payload is None or entry.payload is LOST
        if head is None or unusable or (self.canonical_only and not entry.canonical):
            return False
        if head.key in self.shelf:
            return True
        if not again and (self._paused_until_s or self._unsaved):
            return self._later(entry)
        tensors = self._tensors(entry)
        nbytes = sum(array.nbytes for array in tensors.values()) + len(head.tokens)
        if not writer.takes(nbytes):
            return self._later(entry)
        placed = self._place(head, file_bytes(head, tensors))
        if placed is not None:
            writer.offer(Save(placed, entry, head, tensors, nbytes, entry.hits, placed.clock))
            self._made_room.pop(head.key, None)
            for replaced in self.shelf.take_superseded():
                writer.remove(Remove(replaced.namespace, replaced.key))
        return placed is not None

    def _place(self, head: Head, size: int) -> Node | Mark | None:
        """A place in the index and room on the disk for a file of `size` bytes; None where what the
        entry follows is not there, or room cannot be made."""
        parent = self.shelf.keep_parent(head)
        if parent is None:
            return None
        fits = self._make_room(disk_bytes(size, len(head.tokens)))
        placed = self.shelf.add(head, size) if fits else None
        self.shelf.unpin(parent)
        self.counts.refused += not fits
        return placed

    def _later(self, entry: Node | Mark) -> bool:
        self._unsaved[entry] = None
        if len(self._unsaved) >= self._most_unsaved:
            for one in [one for one in self._unsaved if one.payload is None]:
                del self._unsaved[one]
            self._most_unsaved = 2 * len(self._unsaved) + _SMALL
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
            if isinstance(gone, Node):
                self._made_room[gone.key] = None
        while len(self._made_room) > _REMEMBERED:
            self._made_room.popitem(last=False)
        return self.shelf.used_bytes + nbytes <= limit

    def limit_bytes(self) -> int:
        """The budget, less what files of another version take; or less than that where the file
        system runs short: what is used and what is free, less the reserve."""
        now_s = time.monotonic()
        if now_s - self._limit[0] > _BUDGET_CHECK_S:
            budget = self.settings.budget_bytes - self.opened.other_version_bytes
            free = self.files.free_bytes() - self.settings.reserve_bytes
            self._limit = (now_s, max(0, min(budget, self.shelf.used_bytes + free)))
        return self._limit[1]

    def _forget(self, entry: Entry) -> None:
        assert isinstance(entry.payload, OnDisk)
        if self._writer is not None:
            self._writer.remove(Remove(entry.payload.namespace, entry.payload.key))

    def poll(self) -> None:
        """Takes in what has been written, and tries again what was put off. Cheap when idle."""
        writer = self._writer
        if writer is None:
            return
        failed: list[Node | Mark] = []
        for answer in writer.answers():
            self._take_in(answer, failed)
        for entry in reversed(failed):
            self._unsaved[entry] = None
            self._unsaved.move_to_end(entry, last=False)
        if not self._paused_until_s:
            while self._unsaved and writer.has_room:
                if not self._retry_first():
                    break
        elif time.monotonic() >= self._paused_until_s and not writer.queued:
            while self._unsaved and not writer.queued:
                self._retry_first()

    def _retry_first(self) -> bool:
        """Saves what has waited longest. False: it has to wait on."""
        entry, _ = self._unsaved.popitem(last=False)
        self._save(entry, again=True)
        if entry in self._unsaved:
            self._unsaved.move_to_end(entry, last=False)
            return False
        return True

    def _take_in(self, answer: Saved, failed: list[Node | Mark]) -> None:
        save, error = answer.save, answer.error
        if save.entry in self._fell_with_parent:
            self._fell_with_parent.discard(save.entry)
            failed.append(save.source)
        elif error is None:
            self.counts.saved += 1
        elif error.errno not in ONE_ENTRY_ONLY:
            failed.append(save.source)
        if error is None:
            if self._paused_until_s:
                log.warning("The SSD cache is being written again.")
                self._paused_until_s = 0.0
            return
        self.counts.write_errors += 1
        for gone in self.shelf.drop(save.entry):
            self._forget(gone)
            if gone is not save.entry:
                self._fell_with_parent.add(gone)
        self._report(error)

    def _report(self, error: OSError) -> None:
        why = error.strerror or str(error)
        if error.errno in ONE_ENTRY_ONLY:
            log.warning("An entry of the SSD cache could not be written: %s: %s", error.filename, why)
            return
        if not self._paused_until_s:
            full = error.errno in (errno.ENOSPC, errno.EDQUOT)
            hint = "free some space or lower --ssd-cache; " if full else ""
            log.warning(
                "The SSD cache cannot be written (%s): %suntil then RAM alone is used. It is tried again "
                "every %.0f s.",
                why,
                hint,
                PAUSE_S,
            )
        self._paused_until_s = time.monotonic() + PAUSE_S

    def flush(self, *, timeout_s: float, progress: Callable[[int], None] | None = None) -> int:
        """Writes what is queued and put off; answers how many entries could not be written in time."""
        writer = self._writer
        if writer is None:
            return 0
        deadline_s = time.monotonic() + timeout_s
        while True:
            done = writer.flush(timeout_s=max(0.0, deadline_s - time.monotonic()), progress=progress)
            self.poll()
            waits = bool(self._unsaved) and time.monotonic() < self._paused_until_s
            if not done or waits or not (self._unsaved or writer.queued):
                left = [entry for entry in self._unsaved if entry.payload is not None]
                return writer.queued + len(left)

    def close(self) -> None:
        """Ends the threads and lets go of the store. What was not flushed is written first."""
        self.readers.shutdown(wait=True, cancel_futures=True)
        if self._writer is not None and self._writer.close():
            seal_if_known(self.files, self.opened)
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
        try:
            if head.kind is EntryKind.LOGITS:
                return tensors["logits"].tobytes()
            if head.kind is EntryKind.CHECKPOINT:
                return tensors["state"].tobytes()
            planes = tuple(tensors[f"plane.{plane.name}"] for plane in self._layout.planes)
        except KeyError as error:
            raise StoreFileError(Reason.CORRUPT, f"{where.key.hex()} has no tensor {error}") from error
        want = [(len(head.tokens) // TOKEN_BYTES, plane.row_bytes) for plane in self._layout.planes]
        if [plane.shape for plane in planes] != want or head.canonical != entry.canonical:
            raise StoreFileError(
                Reason.CORRUPT, f"{where.key.hex()} has planes of another shape or kind than is needed"
            )
        return RowBytes(planes, sole=True)

    def lose(self, entry: Node | Mark, error: StoreFileError) -> None:
        """The file of an entry could not be used: it goes, and with it what needs it. An error that may
        pass is forgiven once."""
        self.counts.read_failures += 1
        assert isinstance(entry.payload, OnDisk)
        key = entry.payload.key
        if error.passing and key not in self._failed_once:
            self._failed_once.add(key)
            return
        self._failed_once.discard(key)
        for gone in self.shelf.drop(entry):
            self._forget(gone)

    def statistics(self) -> SsdStatistics:
        writer = self._writer
        return SsdStatistics(
            used_bytes=self.shelf.used_bytes,
            limit_bytes=self.limit_bytes(),
            blocks=self.shelf.blocks,
            marks=self.shelf.marks,
            waiting=len(self._unsaved) + (0 if writer is None else writer.queued),
            evicted=self.shelf.evicted,
            written_bytes=0 if writer is None else writer.written_bytes,
            **vars(self.counts),
        )

    def unsaved_bytes(self) -> int:
        """Bytes of state that is queued or put off."""
        queued = 0 if self._writer is None else self._writer.queued_bytes
        states = (entry.payload for entry in self._unsaved)
        return queued + sum(
            state.nbytes if isinstance(state, RowBytes) else len(state)
            for state in states
            if isinstance(state, RowBytes | bytes)
        )

    def wake_on_answers(self, wake: Callable[[], None]) -> None:
        """`wake` is called from the writer's thread whenever there is something for `poll`."""
        if self._writer is not None:
            self._writer.on_answer = wake

    def used(self, entries: list[Entry]) -> None:
        """Counts one use of each of `entries`, in the catalog too."""
        self.shelf.touch(entries)
        if self._failed_once:
            self._failed_once -= {one.payload.key for one in entries if isinstance(one.payload, OnDisk)}
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
