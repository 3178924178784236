"""What the SSD holds, as an index: the same tree as the RAM tier's, of entries that lie in files.

Kept apart from the RAM tier's index, so that neither's evictions concern the other: state comes
back from here by being stored in RAM anew. Entries go leaves first, the least recently used first,
GRID checkpoints that were never used before all others. The order of use survives restarts in the
catalog.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from heapq import heappop, heappush

from headstart.prefix.blockfile import EntryKind, Head
from headstart.prefix.catalog import Listed
from headstart.prefix.keys import TokenBytes
from headstart.prefix.stops import StopKind
from headstart.prefix.tree import (
    Entry,
    Mark,
    Match,
    Node,
    Tree,
    at_tail,
    child_prefix_of,
    child_starting_with,
    covered,
    prefixes,
)


@dataclass(frozen=True, eq=False)
class OnDisk:
    """The payload of an entry: which file it is."""

    namespace: bytes
    key: bytes
    kind: EntryKind


class Shelf:
    """Entries on the SSD. `used_bytes`: of all files, those being written included as announced."""

    def __init__(self, block_tokens: int) -> None:
        self.tree = Tree(block_tokens)
        self.used_bytes = 0
        self.blocks = 0
        self.marks = 0
        self.evicted = 0
        self._superseded: list[bytes] = []
        self._sizes: dict[bytes, int] = {}
        self._nodes: dict[bytes, Node] = {}
        self._pins: dict[Node, int] = {}
        self._heap: list[tuple[float, int, Entry]] = []
        self._order = 0

    def load(self, entries: Iterable[Listed]) -> list[Listed]:
        """Takes in what a catalog lists, parents first; answers the entries that cannot be used:
        their parent or the rows of their position are not there."""
        stray: list[Listed] = []
        marks: list[Listed] = []
        for listed in entries:
            head = listed.head
            if head.kind is not EntryKind.BLOCK:
                marks.append(listed)
                continue
            parent = self._parent(head)
            if parent is None or child_starting_with(parent, head.tokens):
                stray.append(listed)
                continue
            node = self.tree.attach(parent, head.tokens, listed.key)
            node.canonical = head.canonical
            self._take_in(node, listed)
        for listed in marks:
            head = listed.head
            parent = self._parent(head)
            if parent is None or not covered(parent, head.tokens):
                stray.append(listed)
                continue
            self._take_in(self._hang(parent, head, listed.nbytes), listed)
        for node in self._nodes.values():
            self._offer(node)
        return stray

    def _parent(self, head: Head) -> Node | None:
        """What an entry hangs on; None where that is not here."""
        if head.parent == head.namespace:
            return self.tree.root(head.namespace)
        return self._nodes.get(head.parent)

    def _take_in(self, entry: Node | Mark, listed: Listed) -> None:
        entry.hits, entry.clock = listed.hits, listed.used_s
        self._count(entry, listed.head, listed.key, listed.nbytes)
        if isinstance(entry, Mark):
            self._offer(entry)

    def _hang(self, parent: Node, head: Head, nbytes: int) -> Mark:
        kind = None if head.kind is EntryKind.LOGITS else StopKind(head.stop)
        mark = Mark(parent, head.tokens, kind, nbytes=nbytes, canonical=head.canonical)
        self.tree.add_mark(mark)
        return mark

    def _count(self, entry: Node | Mark, head: Head, key: bytes, nbytes: int) -> None:
        entry.payload = OnDisk(head.namespace, key, head.kind)
        self._sizes[key] = nbytes
        self.used_bytes += nbytes
        if isinstance(entry, Node):
            self._nodes[key] = entry
            self.blocks += 1
        else:
            self.marks += 1

    def __len__(self) -> int:
        return len(self._sizes)

    def __contains__(self, key: bytes) -> bool:
        return key in self._sizes

    def match(self, namespace: bytes, prompt: TokenBytes) -> Match:
        return self.tree.match(namespace, prompt)

    # Coming and going

    def add(self, head: Head, nbytes: int) -> Node | Mark | None:
        """Announces an entry of about `nbytes` that is about to be written. None: it is here already,
        or what it needs is not: the block before it, or the rows of a mark's position."""
        parent = self._parent(head)
        if parent is None:
            return None
        entry: Node | Mark
        if head.kind is EntryKind.BLOCK:
            if child_starting_with(parent, head.tokens) is not None:
                return None
            shorter = child_prefix_of(parent, head.tokens)
            entry = self.tree.attach(parent, head.tokens, head.key)
            entry.canonical = head.canonical
            if shorter is not None:
                self._supersede(shorter, entry)
        else:
            marks = parent.marks
            present = marks and at_tail(
                marks.logits if head.kind is EntryKind.LOGITS else marks.checkpoints, head.tokens
            )
            if present or not covered(parent, head.tokens):
                return None
            entry = self._hang(parent, head, nbytes)
        entry.clock = time.time()
        self._count(entry, head, head.key, nbytes)
        self._offer(entry)
        return entry

    def _supersede(self, shorter: Node, longer: Node) -> None:
        """A partial block goes when a longer one that begins with it comes; its marks stay."""
        longer.hits = shorter.hits
        self.tree.detach(shorter, longer)
        self._uncount(shorter)
        self._pins.pop(shorter, None)
        assert isinstance(shorter.payload, OnDisk)
        self._superseded.append(shorter.payload.key)

    def take_superseded(self) -> list[bytes]:
        """Keys of partial blocks that were replaced since the last call: their files may go once
        the longer ones are written."""
        taken, self._superseded = self._superseded, []
        return taken

    def written(self, key: bytes, nbytes: int) -> None:
        """The file of an entry is there and has `nbytes`."""
        if key in self._sizes:
            self.used_bytes += nbytes - self._sizes[key]
            self._sizes[key] = nbytes

    def drop(self, entry: Node | Mark) -> list[Entry]:
        """Takes out an entry, and with a block all that needs it; answers what went, leaves first."""
        if isinstance(entry, Mark):
            if entry.node is None:
                return []
            self.tree.remove_mark(entry)
            self._uncount(entry)
            return [entry]
        gone: list[Entry] = []
        for node in _subtree(entry):
            if node.marks is not None:
                for mark in [*node.marks.checkpoints, *node.marks.logits]:
                    gone += self.drop(mark)
            for mark in self.tree.detach(node):
                self._uncount(mark)
                gone.append(mark)
            self._uncount(node)
            self._pins.pop(node, None)
            gone.append(node)
        return gone

    def _uncount(self, entry: Node | Mark) -> None:
        assert isinstance(entry.payload, OnDisk)
        self.used_bytes -= self._sizes.pop(entry.payload.key, 0)
        if isinstance(entry, Node):
            self._nodes.pop(entry.payload.key, None)
            self.blocks -= 1
        else:
            self.marks -= 1

    # Use and eviction

    def pin(self, node: Node) -> None:
        """Keeps `node` and all before it until `unpin`."""
        self._pins[node] = self._pins.get(node, 0) + 1

    def unpin(self, node: Node) -> None:
        left = self._pins.get(node, 0) - 1
        if left > 0:
            self._pins[node] = left
        elif self._pins.pop(node, None) is not None:
            self._offer(node)

    def touch(self, entries: Iterable[Entry]) -> None:
        now = time.time()
        for entry in entries:
            entry.clock = now
            entry.hits += 1

    def evict_to(self, limit_bytes: int) -> Iterator[Entry]:
        """Takes out entries until the rest fits in `limit_bytes`, as far as that can be done."""
        while self.used_bytes > limit_bytes and self._heap:
            priority, _, entry = heappop(self._heap)
            entry.queued = False
            if not self._evictable(entry):
                continue
            if _priority(entry) > priority:
                self._offer(entry)
                continue
            parent = entry.parent if isinstance(entry, Node) else None
            assert isinstance(entry, Node | Mark)
            for gone in self.drop(entry):
                self.evicted += 1
                yield gone
            if parent is not None:
                self._offer(parent)

    def _evictable(self, entry: Entry) -> bool:
        if isinstance(entry, Mark):
            return entry.node is not None
        assert isinstance(entry, Node)
        return not entry.removed and entry.level > 0 and not entry.children and entry not in self._pins

    def _offer(self, entry: Entry) -> None:
        if not entry.queued and self._evictable(entry):
            entry.queued = True
            self._order += 1
            heappush(self._heap, (_priority(entry), self._order, entry))


def _priority(entry: Entry) -> float:
    """The time of the last use; a GRID checkpoint is scaffolding until it was used once."""
    if isinstance(entry, Mark) and entry.kind is StopKind.GRID and not entry.hits:
        return 0.0
    return entry.clock


def _subtree(top: Node) -> list[Node]:
    """`top` and all below it, children before parents."""
    found, to_visit = [], [top]
    while to_visit:
        node = to_visit.pop()
        found.append(node)
        children = node.children
        to_visit += [children] if isinstance(children, Node) else list(children or ())
    return found[::-1]


def covering(parent: Node, tokens: bytes) -> list[Mark]:
    """Marks on `parent` whose rows a block with `tokens` after it holds."""
    if parent.marks is None:
        return []
    return [*prefixes(parent.marks.checkpoints, tokens), *prefixes(parent.marks.logits, tokens)]
