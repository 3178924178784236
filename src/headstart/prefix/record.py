"""Storing what a live sequence leaves behind, while it runs."""

from __future__ import annotations

import logging

import numpy as np
import numpy.typing as npt

from headstart.prefix.block import Checkpoint, RowBytes
from headstart.prefix.holdings import Holdings
from headstart.prefix.keys import TOKEN_BYTES, token_bytes
from headstart.prefix.stops import StopKind
from headstart.prefix.tokens import TokenRun
from headstart.prefix.tree import Node, resolve

_log = logging.getLogger(__name__)


class Recorder:
    """Follows one live sequence and stores its rows, block by block.

    `position`: rows of tokens 0..position are stored, or wait here for their block to fill up; the
    caller copies out from here. `active`: False once something could not be stored; from then on
    every call does nothing. The recorder keeps the path it stands on from being evicted.

    The open block is made of the first `_offset` rows of the stored block `_source` (after the
    node `_base`) and of the rows that came since. Room for all of it is reserved when its first
    row comes, so what was taken can always be stored.
    """

    def __init__(self, holdings: Holdings, namespace: bytes, tokens: TokenRun) -> None:
        self._holdings = holdings
        self._bt = holdings.tree.block_tokens
        self._rows: list[RowBytes] = []
        self._reserved = 0
        self._canonical = True
        self._head = b""
        self._offset = 0
        root = holdings.root(namespace)
        self.active = root is not None
        self._base: Node | None = root
        self._source: Node | None = root
        if root is not None:
            self._start(root, namespace, tokens)

    def _start(self, root: Node, namespace: bytes, tokens: TokenRun) -> None:
        prompt = token_bytes(tokens)
        match = self._holdings.tree.match(namespace, prompt)
        whole = list(match.path)
        partial = match.partial
        if self._holdings.canonical:
            usable = next((i for i, node in enumerate(whole) if i and not node.canonical), len(whole))
            if usable < len(whole) or (partial is not None and not partial.canonical):
                partial = None
            whole = whole[:usable]
        base = whole[-1]
        self._base = base
        if partial is not None:
            self._offset = match.partial_tokens
            self._head = partial.tokens[: self._offset * TOKEN_BYTES]
        self._source = self._holdings.pin(partial if partial is not None else base)
        self._holdings.unpin(root)

    @property
    def position(self) -> int:
        if self._base is None:
            return 0
        return self._base.level * self._bt + len(self._head) // TOKEN_BYTES

    def record(self, tokens: TokenRun, rows: RowBytes, *, canonical: bool) -> None:
        """Takes the rows of `tokens`, which stand at position..position + len(tokens).

        `canonical`: made by prefill in chunks on the absolute grid. Raises ValueError where rows
        and tokens differ in number (a layout without planes has no rows to count).
        """
        count = len(tokens)
        if len(rows) != count and self._holdings.layout.planes:
            raise ValueError(f"{count} tokens came with rows of {len(rows)}; their numbers must be equal")
        data = token_bytes(tokens)
        at = 0
        while at < count and self.active:
            take = min(self._bt - len(self._head) // TOKEN_BYTES, count - at)
            self._append(
                data[at * TOKEN_BYTES : (at + take) * TOKEN_BYTES], rows.cut(at, at + take), canonical
            )
            at += take

    def _append(self, tokens: bytes, rows: RowBytes, canonical: bool) -> None:
        self._canonical = self._canonical and canonical
        self._head += tokens
        if len(self._head) == self._bt * TOKEN_BYTES:
            self._rows.append(rows)
            self._store()
            return
        if not self._reserved:
            size = self._holdings.ram.node_bytes(self._bt)
            if not self._holdings.reserve(size):
                self._give_up()
                return
            self._reserved = size
        self._rows.append(rows.owned())

    def flush(self) -> None:
        """Stores the partial block at the end, so that it can be restored from now on."""
        if self.active and self._rows and self._base is not None:
            if self._holdings.waits_for(self._base, self._head, canonical=self._canonical):
                return
            self._store()

    def _store(self) -> None:
        base, source = self._base, self._source
        assert base is not None and source is not None
        self._holdings.release(self._reserved)
        self._reserved = 0
        node = self._holdings.add_block(base, self._head, self._parts, canonical=self._canonical)
        self._rows = []
        if node is None:
            self._give_up()
            return
        self._holdings.unpin(source)
        self._source = node
        self._offset = len(self._head) // TOKEN_BYTES
        if self._offset == self._bt:
            self._base, self._offset, self._head = node, 0, b""

    def _parts(self) -> list[RowBytes]:
        if not self._offset:
            return self._rows
        assert self._source is not None
        return [self._holdings.ram.rows(resolve(self._source)).cut(0, self._offset), *self._rows]

    def _give_up(self) -> None:
        self.active = False
        self._head = self._head[: self._offset * TOKEN_BYTES]
        self._holdings.release(self._reserved)
        self._reserved = 0
        self._rows = []
        _log.info("A sequence is stored up to token %d only: the cache is full", self.position)

    def put_checkpoint(self, checkpoint: Checkpoint, kind: StopKind) -> None:
        """Stores recurrent state taken at 1..position. Raises ValueError for another position."""
        if not self.active:
            return
        at = checkpoint.position
        if not 0 < at <= self.position:
            raise ValueError(f"a checkpoint at {at} cannot be stored: rows are stored for 1..{self.position}")
        self.flush()
        if self.active:
            node, tail = self._place(at)
            self._holdings.add_mark(node, tail, kind, checkpoint.data, canonical=self._canonical)

    def put_logits(self, logits: npt.NDArray[np.float32], at: int | None = None) -> None:
        """Stores the next-token scores after exactly `at` tokens (default: `position`).

        Not kept where rows are canonical: a canonical run reads its last tokens again.
        Raises ValueError for a position outside 1..position.
        """
        if not self.active or self._holdings.canonical:
            return
        at = self.position if at is None else at
        if not 0 < at <= self.position:
            raise ValueError(f"logits at {at} cannot be stored: rows are stored for 1..{self.position}")
        self.flush()
        if self.active:
            node, tail = self._place(at)
            data = np.ascontiguousarray(logits, dtype=np.float32).tobytes()
            self._holdings.add_mark(node, tail, None, data, canonical=self._canonical)

    def _place(self, position: int) -> tuple[Node, bytes]:
        """The node a mark at `position` hangs on, and its tail."""
        node = self._base
        assert node is not None
        if position > node.level * self._bt:
            return node, self._head[: (position - node.level * self._bt) * TOKEN_BYTES]
        while (node.level - 1) * self._bt >= position:
            assert node.parent is not None
            node = node.parent
        assert node.parent is not None
        return node.parent, node.tokens[: (position - (node.level - 1) * self._bt) * TOKEN_BYTES]

    def close(self) -> None:
        """Stores what waits and lets go of the path. Calling it again does nothing."""
        self.flush()
        if self._source is not None:
            self._holdings.release(self._reserved)
            self._reserved = 0
            self._rows = []
            self._holdings.unpin(self._source)
            self._source = None
        self.active = False
