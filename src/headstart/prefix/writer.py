"""The background writer of the SSD tier: one thread, a bounded queue, answers in order.

The engine thread offers work and never waits: a full queue says so, and the entry stays in RAM as
not yet saved. Files are written as they come; the catalog is committed every `flush_interval_s`.
Order on disk is file, then row; at a removal row, then file. So whatever moment the process dies at,
a file that is there is whole, and a row without a file or a file without a row is put right at the
next start. For the same reason a catalog that cannot be written stops nothing.
"""

from __future__ import annotations

import logging
import sqlite3
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from headstart.prefix.blockfile import Array, Head
from headstart.prefix.catalog import Catalog, Listed
from headstart.prefix.faults import Step
from headstart.prefix.ssd import SsdFiles

_log = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class Save:
    """An entry to be written. `entry` and `source` come back with the answer; `nbytes` is what it keeps
    in memory; `hits` and `used_s` (Unix time) are its uses so far and the last of them."""

    entry: Any
    source: Any
    head: Head
    tensors: Mapping[str, Array]
    nbytes: int
    hits: int
    used_s: float


@dataclass(frozen=True, eq=False)
class Remove:
    """An entry whose file and row are to go."""

    namespace: bytes
    key: bytes


@dataclass(frozen=True, eq=False)
class Saved:
    """The answer to a Save. `file_bytes`: size of the file; `error`: why there is none."""

    save: Save
    file_bytes: int
    error: OSError | None = None


class Writer:
    """Writes and removes entries of one store on a thread of its own, which closes the catalog in the
    end."""

    def __init__(
        self, files: SsdFiles, catalog: Catalog, *, queue_bytes: int, flush_interval_s: float = 1.0
    ) -> None:
        self._files = files
        self._catalog = catalog
        self._queue_bytes = queue_bytes
        self._flush_interval_s = flush_interval_s
        self._news = threading.Condition()
        self._jobs: deque[Save | Remove] = deque()
        self._uses: dict[bytes, tuple[int, float]] = {}
        self._answers: deque[Saved] = deque()
        self._queued_bytes = 0
        self._closing = False
        self._busy = False
        self._uncommitted = False
        self._hurry = False
        self._catalog_fails = False
        self._out_of_step = False
        self.on_answer: Callable[[], None] = lambda: None
        """Called on the writer's thread whenever there are `answers`."""
        self.written_bytes = 0
        """Bytes of all files written since the writer was made."""
        self._thread = threading.Thread(target=self._loop, name="headstart-writer", daemon=True)
        self._thread.start()

    def offer(self, save: Save) -> bool:
        """Queues a save. False: the queue is full (an empty one takes a save of any size)."""
        with self._news:
            if not self.takes(save.nbytes):
                return False
            self._queued_bytes += save.nbytes
            self._jobs.append(save)
            self._news.notify()
        return True

    def takes(self, nbytes: int) -> bool:
        """Whether a save of `nbytes` would be queued. Only `offer` can change that from yes to no."""
        return not self._queued_bytes or self._queued_bytes + nbytes <= self._queue_bytes

    def remove(self, remove: Remove) -> None:
        """Queues a removal; it comes after the saves that were offered before it."""
        with self._news:
            self._jobs.append(remove)
            self._news.notify()

    def note_use(self, key: bytes, hits: int, used_s: float) -> None:
        """The catalog will know of a use after the next commit."""
        with self._news:
            self._uses[key] = (hits, used_s)
            self._news.notify()

    def answers(self) -> list[Saved]:
        """What has been written since the last call, in the order it was offered."""
        return [self._answers.popleft() for _ in range(len(self._answers))]

    @property
    def has_room(self) -> bool:
        """Whether less than half of the queue is in use."""
        return self._queued_bytes * 2 <= self._queue_bytes

    @property
    def queued_bytes(self) -> int:
        """Bytes of the saves not yet done."""
        return self._queued_bytes

    @property
    def queued(self) -> int:
        """Jobs not yet done."""
        return len(self._jobs) + self._busy

    def flush(self, *, timeout_s: float, progress: Callable[[int], None] | None = None) -> bool:
        """Waits until everything queued is on disk and committed. False when time ran out first.

        `progress` gets the number of jobs left, a few times a second."""
        deadline_s = time.monotonic() + timeout_s
        with self._news:
            while self._jobs or self._busy or self._uncommitted or self._uses:
                left_s = deadline_s - time.monotonic()
                if left_s <= 0 or not self._thread.is_alive():
                    return False
                self._hurry = True
                self._news.notify_all()
                if progress is not None:
                    progress(self.queued)
                self._news.wait(min(left_s, 0.2))
        return True

    def close(self, *, timeout_s: float = 60.0) -> bool:
        """Finishes what is queued, commits and ends the thread. Whether all of that was done in time, and
        the catalog has been in step with the files throughout."""
        with self._news:
            self._closing = True
            self._news.notify()
        self._thread.join(timeout_s)
        return not self._thread.is_alive() and not self._out_of_step

    def _loop(self) -> None:
        committed_s = time.monotonic()
        while True:
            job = self._next(committed_s + self._flush_interval_s)
            if job is not None:
                self._do(job)
            due = time.monotonic() - committed_s >= self._flush_interval_s
            with self._news:
                idle, closing, hurry = not self._jobs, self._closing, self._hurry
            if due or (idle and (closing or hurry)):
                self._commit()
                committed_s = time.monotonic()
            if idle and closing:
                self._in_catalog(self._catalog.close)
                return

    def _next(self, deadline_s: float) -> Save | Remove | None:
        """The next job, or None when it is time to commit."""
        with self._news:
            while not self._jobs and not self._closing:
                pending = self._uncommitted or self._uses
                if pending and self._hurry:
                    return None
                wait_s = deadline_s - time.monotonic() if pending else None
                if wait_s is not None and wait_s <= 0:
                    return None
                self._news.wait(wait_s)
            if not self._jobs:
                return None
            self._busy = True
            return self._jobs.popleft()

    def _do(self, job: Save | Remove) -> None:
        if isinstance(job, Remove):
            self._remove(job)
        else:
            self._save(job)
        with self._news:
            self._uncommitted = True
            self._busy = False
            if isinstance(job, Save):
                self._queued_bytes -= job.nbytes
            self._news.notify_all()
        if isinstance(job, Save):
            self.on_answer()

    def _remove(self, job: Remove) -> None:
        self._in_catalog(lambda: self._catalog.remove([job.key]))
        self._in_catalog(self._catalog.commit)
        try:
            self._files.remove(job.namespace, job.key)
        except OSError as error:
            self._out_of_step = True
            _log.warning("A file of the SSD cache could not be removed: %s", error)

    def _save(self, job: Save) -> None:
        key = job.head.key
        try:
            size = self._files.write(job.head, job.tensors)
        except OSError as error:
            self._out_of_step = True
            self._answers.append(Saved(job, 0, error))
            return
        self.written_bytes += size
        row = Listed.of(key, job.head, size, job.hits, job.used_s)
        self._in_catalog(lambda: self._catalog.put([row]))
        self._files.at(Step.CATALOGUED, self._files.directory)
        self._answers.append(Saved(job, size))

    def _commit(self) -> None:
        with self._news:
            uses, self._uses = self._uses, {}
            self._hurry = False
        self._in_catalog(
            lambda: self._catalog.touch((key, hits, used_s) for key, (hits, used_s) in uses.items())
        )
        if self._in_catalog(self._catalog.commit):
            self._catalog_fails = False
        self._files.at(Step.COMMITTED, self._files.directory)
        with self._news:
            self._uncommitted = False
            self._news.notify_all()

    def _in_catalog(self, change: Callable[[], None]) -> bool:
        """Does `change`; where the catalog cannot be written, that is said once."""
        try:
            change()
        except sqlite3.Error as error:
            if not self._catalog_fails:
                _log.warning(
                    "The catalog of the SSD cache cannot be written (%s); the next start reads it from "
                    "the files instead.",
                    error,
                )
            self._catalog_fails = self._out_of_step = True
            return False
        return True
