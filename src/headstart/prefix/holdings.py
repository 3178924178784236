"""What the cache holds: the index, the RAM store and the eviction queue, kept in step.

Every entry in the index is counted in the store, and none is counted that is not in the index.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from headstart.prefix.block import RowBytes, StateLayout
from headstart.prefix.evicted import Evicted
from headstart.prefix.eviction import EvictionQueue
from headstart.prefix.faults import FaultInjector
from headstart.prefix.keys import TOKEN_BYTES, shared_tokens
from headstart.prefix.ram import RamStore, StoreReadError, frozen
from headstart.prefix.stops import IMPORTANCE, StopKind
from headstart.prefix.tree import (
    LOST,
    Entry,
    Mark,
    Node,
    Tree,
    at_tail,
    child_prefix_of,
    child_starting_with,
    covered,
    dependents,
    neighbours,
    resolve,
)
from headstart.prefix.worth import (
    MOST_HITS,
    checkpoint_cost,
    logits_cost,
    mark_worth,
    recompute_cost,
    worth,
)

_log = logging.getLogger(__name__)

_LARGE_SHARE = 16
"""Before an entry of a sixteenth of the limit or more displaces others, it is made sure it can fit."""


@dataclass
class Counts:
    """Running totals since the cache was made, and how many entries it holds now."""

    blocks: int = 0
    checkpoints: int = 0
    logits: int = 0
    evicted_blocks: int = 0
    evicted_checkpoints: int = 0
    evicted_logits: int = 0
    refused: int = 0
    lost: int = 0


class Holdings:
    """Blocks and marks within a byte budget. `canonical`: canonical rows replace others."""

    def __init__(
        self,
        layout: StateLayout,
        *,
        limit_bytes: int,
        block_tokens: int,
        canonical: bool = False,
        remembered_evictions: int = 2048,
        faults: FaultInjector | None = None,
        saver: Callable[[Node | Mark], None] | None = None,
    ) -> None:
        self.layout = layout
        self._saver = saver
        self.canonical = canonical
        self.tree = Tree(block_tokens)
        self.ram = RamStore(layout, limit_bytes, faults)
        self.queue = EvictionQueue(self._priority, self._evictable)
        self.evicted_blocks = Evicted(remembered_evictions)
        self.evicted_checkpoints = Evicted(remembered_evictions)
        self.counts = Counts()
        self._pins: dict[Node, int] = {}
        self._reserved = 0

    # Room

    def make_room(self, nbytes: int) -> bool:
        """Evicts until `nbytes` more fit. False, with nothing evicted where that can be foreseen,
        where they cannot."""
        if self.ram.fits(nbytes):
            return True
        if nbytes > self.ram.limit_bytes:
            log = _log.warning if self.ram.limit_bytes else _log.debug
            log(
                "An entry of %d bytes was not stored: the RAM cache holds %d bytes in all. "
                "Raise its limit to keep such entries.",
                nbytes,
                self.ram.limit_bytes,
            )
            return self._refuse()
        large = nbytes * _LARGE_SHARE > self.ram.limit_bytes
        if large and nbytes + self._bound_bytes() > self.ram.limit_bytes:
            return self._refuse()
        while not self.ram.fits(nbytes):
            entry = self.queue.take()
            if entry is None:
                return self._refuse()
            self._evict(entry)
        return True

    def reserve(self, nbytes: int) -> bool:
        """Counts `nbytes` for a block of which some rows have come and wait for the others."""
        if not self.make_room(nbytes):
            return False
        self.ram.take(nbytes)
        self._reserved += nbytes
        return True

    def release(self, nbytes: int) -> None:
        """Undoes `reserve`."""
        self.ram.give(nbytes)
        self._reserved -= nbytes

    def _refuse(self) -> bool:
        self.counts.refused += 1
        return False

    def _bound_bytes(self) -> int:
        """Bytes that cannot be evicted now: pinned blocks, their ancestors, and reservations."""
        bound: set[Node] = set()
        for pinned in self._pins:
            node: Node | None = pinned
            while node is not None and node not in bound:
                bound.add(node)
                node = node.parent
        return self._reserved + sum(self.ram.counted(node) for node in bound)

    # Pins

    def root(self, namespace: bytes) -> Node | None:
        """The root of `namespace`, pinned once; None where there is no room for one."""
        if namespace not in self.tree.roots:
            size = self.ram.root_bytes(namespace)
            if not self.make_room(size):
                return None
            self.ram.take(size)
        return self.pin(self.tree.root(namespace))

    def pin(self, node: Node) -> Node:
        """Keeps `node` and all before it until `unpin`."""
        self._pins[node] = self._pins.get(node, 0) + 1
        return node

    def unpin(self, node: Node) -> None:
        """Undoes one `pin` of `node` or of the block it has replaced."""
        node = resolve(node)
        left = self._pins.get(node, 0) - 1
        if left > 0:
            self._pins[node] = left
        elif self._pins.pop(node, None) is not None:
            self._settle(node)

    def _settle(self, node: Node) -> None:
        """A node that may have become a free leaf: queue it, or drop it where it holds nothing."""
        if node.removed or node.children is not None or node in self._pins:
            return
        if node.level == 0:
            if self.tree.roots.pop(node.key, None) is not None:
                self.ram.give(self.ram.root_bytes(node.key))
        elif node.payload is LOST:
            self._drop_block(node)
        else:
            self.queue.offer(node)

    # Blocks

    def add_block(
        self, parent: Node, tokens: bytes, parts: Callable[[], Sequence[RowBytes]], *, canonical: bool
    ) -> Node | None:
        """Stores a block after `parent`, which the caller has pinned; answers it pinned once more.

        Where a block that begins with `tokens` is stored already, that one is the answer and the
        new rows are not looked at: the first rows win. Where a sibling shares tokens, its rows of
        them are used, so that every copy of a row has the same bits. A partial block that is a
        beginning of the new one is replaced by it. `parts` are rows that make up the block when
        joined. None: no room, or the rows could not be had.
        """
        present = child_starting_with(parent, tokens)
        if present is not None and not (
            present.tokens == tokens and self._outdated(present, canonical=canonical)
        ):
            return self.pin(present)
        replaced = present if present is not None else child_prefix_of(parent, tokens)
        size = self.ram.node_bytes(len(tokens) // TOKEN_BYTES)
        if replaced is not None:
            self.pin(replaced)
        try:
            before = 0 if replaced is None else self.ram.counted(replaced)
            rows = self._rows(parent, tokens, parts, canonical) if self.make_room(size - before) else None
        finally:
            if replaced is not None:
                self._pins[replaced] -= 1
                if not self._pins[replaced]:
                    del self._pins[replaced]
        if rows is None:
            if replaced is not None:
                self._settle(replaced)
            return None
        if present is not None:
            return self._renew(present, rows, canonical)
        return self._insert(parent, tokens, rows, replaced, canonical)

    def waits_for(self, parent: Node, tokens: bytes, *, canonical: bool) -> bool:
        """Whether `tokens` are only the beginning of a block whose rows they are to replace
        (lost, or not canonical): they have to wait until they make up all of it."""
        present = child_starting_with(parent, tokens)
        return (
            present is not None
            and len(tokens) < len(present.tokens)
            and self._outdated(present, canonical=canonical)
        )

    def _outdated(self, present: Node, *, canonical: bool) -> bool:
        return present.payload is LOST or (self.canonical and canonical and not present.canonical)

    def _rows(
        self, parent: Node, tokens: bytes, parts: Callable[[], Sequence[RowBytes]], canonical: bool
    ) -> RowBytes | None:
        """The rows to store: those of the sibling that shares most tokens, then those of `parts`."""
        count = len(tokens) // TOKEN_BYTES
        try:
            own = RowBytes.join(list(parts()))
            best, shared = None, 0
            for sibling in neighbours(parent, tokens):
                common = shared_tokens(sibling.tokens, tokens)
                usable = not self.canonical or sibling.canonical or not canonical
                if common > shared and usable and sibling.tokens != tokens:
                    best, shared = sibling, common
            if best is not None:
                own = RowBytes.join([self.ram.rows(best).cut(0, shared), own.cut(shared, count)])
        except StoreReadError as failure:
            _log.warning("A block was not stored: %s", failure)
            self.counts.refused += 1
            return None
        return frozen(own)

    def _insert(
        self, parent: Node, tokens: bytes, rows: RowBytes, replaced: Node | None, canonical: bool
    ) -> Node:
        node = self.tree.attach(parent, tokens)
        node.payload = rows
        node.canonical = canonical
        node.clock = self.queue.clock
        node.hits = 1 if self._expected(parent, node) else 0
        self.counts.blocks += 1
        self.pin(node)
        if replaced is not None:
            node.hits = max(node.hits, replaced.hits)
            self._pins[node] += self._pins.pop(replaced, 0)
            self._drop_block(replaced, node)
        self.ram.take(self.ram.counted(node))
        if self._saver is not None and len(tokens) == self.tree.block_bytes:
            self._saver(node)
        return node

    def _expected(self, parent: Node, node: Node) -> bool:
        """Whether a new block will likely be used again: a conversation goes on (the one before it
        was used again and nothing else follows it), or it was evicted and had to be read again."""
        goes_on = parent.hits > 0 and parent.children is node
        return goes_on or self.evicted_blocks.within(parent.key, node.tokens) == node.count

    def _renew(self, node: Node, rows: RowBytes, canonical: bool) -> Node:
        self.ram.give(self.ram.counted(node))
        node.payload = rows
        node.canonical = canonical
        self.ram.take(self.ram.counted(node))
        if self._saver is not None and len(node.tokens) == self.tree.block_bytes:
            self._saver(node)
        return self.pin(node)

    def lose(self, node: Node) -> None:
        """The rows of `node` are damaged. What comes after it stays, for when it is filled again."""
        self.counts.lost += 1
        self.ram.give(self.ram.counted(node))
        node.payload = LOST
        self.ram.take(self.ram.counted(node))
        self._settle(node)

    # Marks

    def add_mark(
        self, node: Node, tail: bytes, kind: StopKind | None, payload: bytes, *, canonical: bool
    ) -> bool:
        """Stores a checkpoint taken for `kind`, or logits (None), at the end of `tail` after `node`.

        The first one stored there stays, with the more important of the two kinds. False: no room,
        or the rows up to there are not stored.
        """
        present = None
        if node.marks is not None:
            present = at_tail(node.marks.logits if kind is None else node.marks.checkpoints, tail)
        if present is not None:
            if not (self.canonical and canonical and not present.canonical):
                if kind is not None and present.kind is not None:
                    present.kind = min(present.kind, kind, key=IMPORTANCE.index)
                return True
            self.drop_mark(present)
        if not self.make_room(self.ram.mark_bytes(tail, len(payload))) or not covered(node, tail):
            return False
        mark = Mark(node, tail, kind, nbytes=len(payload), canonical=canonical)
        mark.payload = payload
        mark.clock = self.queue.clock
        self.ram.take(self.ram.counted(mark))
        self.tree.add_mark(mark)
        if kind is None:
            self.counts.logits += 1
        else:
            self.counts.checkpoints += 1
        self.queue.offer(mark)
        if self._saver is not None:
            self._saver(mark)
        return True

    def drop_mark(self, mark: Mark) -> None:
        """Takes one mark out, for example because it is damaged."""
        self.tree.remove_mark(mark)
        self._forget_mark(mark)

    # Use and eviction

    def touch(self, entries: Iterable[Entry]) -> None:
        """Counts one use of each of `entries`."""
        clock = self.queue.clock
        for entry in entries:
            entry.clock = clock
            if entry.hits < MOST_HITS:
                entry.hits += 1

    def _priority(self, entry: Entry) -> float:
        """As in worth.py. A block ranks no lower than the marks that would go with it."""
        if isinstance(entry, Mark):
            at, nbytes = self.tree.position(entry), self.ram.counted(entry)
            before = None if entry.kind is None else self.tree.checkpoint_below(entry)
            cost = logits_cost(at) if before is None else checkpoint_cost(before, at)
            return entry.clock + mark_worth(entry.kind, cost, nbytes, entry.hits)
        assert isinstance(entry, Node) and entry.parent is not None
        cost = recompute_cost(self.tree.start(entry), self.tree.stop(entry))
        own = entry.clock + worth(cost, self.ram.counted(entry), entry.hits)
        return max([own, *map(self._priority, dependents(entry.parent, entry))])

    def _evictable(self, entry: Entry) -> bool:
        if isinstance(entry, Mark):
            return entry.node is not None
        assert isinstance(entry, Node)
        return not entry.removed and entry.children is None and entry not in self._pins

    def _evict(self, entry: Entry) -> None:
        if isinstance(entry, Mark):
            assert entry.node is not None
            if entry.kind is None:
                self.counts.evicted_logits += 1
            else:
                self.evicted_checkpoints.add(entry.node.key, entry.tail)
                self.counts.evicted_checkpoints += 1
            self.drop_mark(entry)
            return
        assert isinstance(entry, Node) and entry.parent is not None
        self.evicted_blocks.add(entry.parent.key, entry.tokens)
        self.counts.evicted_blocks += 1
        self._drop_block(entry)

    def _drop_block(self, node: Node, successor: Node | None = None) -> None:
        parent = node.parent
        assert parent is not None
        self.ram.give(self.ram.counted(node))
        self.counts.blocks -= 1
        for mark in self.tree.detach(node, successor):
            self._forget_mark(mark)
        node.payload = None
        self.queue.forget(node)
        self._settle(parent)

    def _forget_mark(self, mark: Mark) -> None:
        self.ram.give(self.ram.counted(mark))
        mark.payload = None
        if mark.kind is None:
            self.counts.logits -= 1
        else:
            self.counts.checkpoints -= 1
        self.queue.forget(mark)
