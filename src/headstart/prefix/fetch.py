"""Bringing a prompt's state back from the SSD: read by threads, checked there, stored in RAM anew.

A few reads are always under way, so that reading, checking and storing overlap; the engine thread
only stores what has arrived.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future

import numpy as np

from headstart.prefix.block import Checkpoint, RowBytes
from headstart.prefix.keys import TOKEN_BYTES
from headstart.prefix.record import Recorder
from headstart.prefix.report import Reason
from headstart.prefix.ssd import StoreFileError
from headstart.prefix.ssd_tier import SsdTier
from headstart.prefix.stops import StopKind
from headstart.prefix.tokens import TokenRun
from headstart.prefix.tree import Entry, Mark, Node, resolve

_log = logging.getLogger(__name__)

AHEAD = 8
"""Reads under way or waiting to be stored."""


class Fetch:
    """One prompt's entries on their way from the SSD to the RAM tier.

    `recorder` stands where the RAM tier's rows of the prompt end. `advance` until `done`, then plan
    again while the fetch is still open (it keeps what it brought from being evicted), then `close`.
    """

    def __init__(
        self,
        tier: SsdTier,
        recorder: Recorder,
        blocks: list[Node],
        marks: list[Mark],
        wake: Callable[[], None],
    ) -> None:
        self._tier = tier
        self._recorder = recorder
        self._wake = wake
        self._to_read: deque[Node | Mark] = deque()
        self._reading: deque[tuple[Node | Mark, Future[RowBytes | bytes]]] = deque()
        self._used: list[Entry] = []
        self._started_s = time.perf_counter()
        self.reason: Reason | None = None
        self.nbytes = 0
        self.tokens = 0
        self.elapsed_s = 0.0
        blocks, marks = self._proved(blocks, marks)
        for node in blocks:
            tier.shelf.pin(node)
        self._pinned = blocks
        self._to_read += [*blocks, *marks]
        self._submit()

    def _proved(self, blocks: list[Node], marks: list[Mark]) -> tuple[list[Node], list[Mark]]:
        """What of them stands behind the tokens that its key says. The first that does not is dropped."""
        ends: list[Node | Mark] = [*blocks[-1:], *marks]
        for last in ends:
            wrong = self._tier.shelf.first_wrong(last)
            if wrong is not None:
                error = StoreFileError(
                    Reason.CORRUPT, "the catalog has an entry under other tokens than its own"
                )
                _log.warning("State on the SSD was not used: %s", error)
                self.reason = error.reason
                self._tier.lose(wrong, error)
                blocks = [node for node in blocks if not node.removed]
                marks = [mark for mark in marks if mark.node is not None]
        return blocks, marks

    @property
    def done(self) -> bool:
        return not self._to_read and not self._reading

    def _submit(self) -> None:
        while self._to_read and len(self._reading) < AHEAD:
            entry = self._to_read.popleft()
            if isinstance(entry, Node):
                entry = resolve(entry)
            future = self._tier.readers.submit(self._tier.read, entry)
            future.add_done_callback(lambda _: self._wake())
            self._reading.append((entry, future))

    def _read_first(self, entry: Node) -> None:
        """Reads `entry`, which has taken the place of a block that was read when it went."""
        future = self._tier.readers.submit(self._tier.read, entry)
        future.add_done_callback(lambda _: self._wake())
        self._reading.appendleft((entry, future))

    def advance(self) -> bool:
        """Stores what has been read so far, in order; answers `done`."""
        while self._reading and self._reading[0][1].done():
            entry, future = self._reading.popleft()
            try:
                self._store(entry, future.result())
            except StoreFileError as error:
                if isinstance(entry, Node) and resolve(entry) is not entry:
                    self._read_first(resolve(entry))
                    continue
                self._fail(entry, error)
                break
            if not self._recorder.active:
                self._stop()
                break
            self._submit()
        if self.done and not self.elapsed_s:
            self._recorder.flush()
            self.elapsed_s = time.perf_counter() - self._started_s
            self._tier.used(self._used)
        return self.done

    def _store(self, entry: Node | Mark, state: RowBytes | bytes) -> None:
        recorder = self._recorder
        if isinstance(entry, Node):
            assert isinstance(state, RowBytes)
            entry = resolve(entry)
            if entry.removed:
                raise StoreFileError(Reason.EVICTED, "the block was dropped meanwhile")
            skip = recorder.position - self._tier.shelf.tree.start(entry)
            count = len(state) if state.planes else entry.count  # a recurrent model leaves no rows
            if 0 <= skip < count:
                tokens = _tokens(entry.tokens)[skip:count]
                recorder.record(tokens, state.cut(skip, count), canonical=entry.canonical)
                self.tokens += len(tokens)
        else:
            assert isinstance(state, bytes)
            node = entry.node
            if node is None:
                return
            position = node.level * self._tier.shelf.tree.block_tokens + len(entry.tail) // TOKEN_BYTES
            if position <= recorder.position:
                self._store_mark(entry, state, position)
        nbytes = state.nbytes if isinstance(state, RowBytes) else len(state)
        self.nbytes += nbytes
        self._tier.counts.read_bytes += nbytes
        self._used.append(entry)

    def _store_mark(self, mark: Mark, state: bytes, position: int) -> None:
        if mark.kind is None:
            self._recorder.put_logits(np.frombuffer(state, np.float32), at=position)
        else:
            self._recorder.put_checkpoint(Checkpoint(position, state), StopKind(mark.kind))

    def _fail(self, entry: Node | Mark, error: StoreFileError) -> None:
        """State that cannot be read is a miss with a reason; what came before it is kept."""
        self._unpin()
        dropped = entry.removed if isinstance(entry, Node) else entry.node is None
        self.reason = Reason.EVICTED if dropped else error.reason
        if not dropped:
            _log.warning("State on the SSD was not used: %s", error)
            self._tier.lose(entry, error)
        self._stop()

    def _stop(self) -> None:
        self._to_read.clear()
        for _, future in self._reading:
            future.cancel()
        self._reading.clear()

    def _unpin(self) -> None:
        for node in self._pinned:
            self._tier.shelf.unpin(node)
        self._pinned = []

    def close(self) -> None:
        """Lets go of what was brought. Calling it again does nothing."""
        self._stop()
        self._unpin()
        self._recorder.close()


def _tokens(data: bytes) -> TokenRun:
    return np.frombuffer(data, ">u4").astype(np.int32)
