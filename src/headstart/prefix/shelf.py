"""What the SSD holds, as an index: the same tree as the RAM tier's, of entries that lie in files.

Kept apart from the RAM tier's index, so that neither's evictions concern the other: state comes
back from here by being stored in RAM anew. Entries go leaves first, the least recently used first,
GRID checkpoints that were never used before all others. The order of use survives restarts in the
catalog.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from operator import attrgetter
from typing import NamedTuple

from headstart.prefix.blockfile import EntryKind, Head
from headstart.prefix.catalog import Listed
from headstart.prefix.eviction import EvictionQueue
from headstart.prefix.keys import TokenBytes, chain_key
from headstart.prefix.ssd import disk_bytes
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
    resolve,
)

_by_tokens = attrgetter("tokens")
_BLOCK = EntryKind.BLOCK


class OnDisk(NamedTuple):
    """The payload of an entry: which file it is, and what that takes up on the disk."""

    namespace: bytes
    key: bytes
    kind: EntryKind
    nbytes: int


class Shelf:
    """Entries on the SSD. `used_bytes`: what all of them take up on the disk, those being written
    included as announced. `block_tokens` 0: blocks of any size are taken in, for tidying up alone.

    A namespace of another block size is counted and evicted like any, and never matched."""

    def __init__(self, block_tokens: int) -> None:
        self.tree = Tree(block_tokens)
        self._others = Tree(0)
        self.used_bytes = 0
        self.blocks = 0
        self.marks = 0
        self.evicted = 0
        self._superseded: list[OnDisk] = []
        self._entries: dict[bytes, Node | Mark] = {}
        self._pins: dict[Node, int] = {}
        self._queue = EvictionQueue(_priority, self._evictable)

    def load(self, entries: Iterable[Listed]) -> list[Listed]:
        """Takes in what a store holds; answers the entries that cannot be used: what they hang on,
        or the rows of their position, are not there, or a longer block has taken their place."""
        below: dict[bytes, dict[bytes, list[Listed]]] = {}
        for left in self._load_plain(entries):
            below.setdefault(left.namespace, {}).setdefault(left.parent, []).append(left)
        stray: list[Listed] = []
        for name, children in below.items():
            self._load_namespace(name, children, stray)
            for listed in children.values():
                stray += listed
        for entry in self._entries.values():
            if isinstance(entry, Node) and entry.children is None:
                self._offer(entry)
        return stray

    def _load_plain(self, entries: Iterable[Listed]) -> Iterator[Listed]:
        """Takes in whole blocks that come after the block they follow, as almost all do; answers the others.
        Written out flat: a large store has a hundred thousand of them."""
        whole = self.tree.block_bytes
        known, roots = self._entries, self.tree.roots
        for one in entries:
            key, kind, namespace, parent_key, tokens, _, canonical, _, nbytes, hits, used_s = one
            parent = roots.get(namespace) if parent_key == namespace else known.get(parent_key)
            fits = type(parent) is Node and (parent.parent is None or len(parent.tokens) == whole)
            if not fits or kind is not _BLOCK or len(tokens) != whole:
                if parent is None and parent_key == namespace:
                    self.tree.root(namespace)
                yield one
                continue
            assert isinstance(parent, Node)
            node = self.tree.attach(parent, tokens, key)
            node.canonical, node.hits, node.clock = canonical, hits, used_s
            size = disk_bytes(nbytes, whole)
            node.payload = OnDisk(namespace, key, kind, size)
            known[key] = node
            self.used_bytes += size
            self.blocks += 1

    def _load_namespace(self, name: bytes, below: dict[bytes, list[Listed]], stray: list[Listed]) -> None:
        """Takes in all of `below` that comes after the root of `name` or a block that is here, parents
        first. A namespace with blocks that are none of this size is put where nothing is matched."""
        most = self.tree.block_bytes
        of_size = True
        parents = [node for node in map(self.block, below) if node is not None]
        if name in below:
            parents.append(self.tree.root(name))
        while parents:
            parent = parents.pop()
            nodes = self._load_below(parent, below.pop(parent.key, []), stray)
            if nodes and len(parent.tokens) != most and parent.parent is not None:
                of_size = False
            for node in nodes:
                parents.append(node)
                if len(node.tokens) > most:
                    of_size = False
        if most and not of_size:
            self._others.roots[name] = self.tree.roots.pop(name)

    def _load_below(self, parent: Node, listed: list[Listed], stray: list[Listed]) -> list[Node]:
        """Takes in what hangs on `parent`; answers the blocks among it."""
        blocks = [one for one in listed if one.kind is _BLOCK]
        blocks.sort(key=_by_tokens)
        nodes: list[Node] = []
        for at, one in enumerate(blocks):
            longer = at + 1 < len(blocks) and blocks[at + 1].tokens.startswith(one.tokens)
            if longer or not one.tokens or child_starting_with(parent, one.tokens) is not None:
                stray.append(one)
                continue
            nodes.append(self._load_block(parent, one))
        for one in listed:
            if one.kind is not _BLOCK:
                if covered(parent, one.tokens):
                    self._take_in(self._hang(parent, one.head, one.nbytes), one)
                else:
                    stray.append(one)
        return nodes

    def _load_block(self, parent: Node, listed: Listed) -> Node:
        node = self.tree.attach(parent, listed.tokens, listed.key)
        node.canonical = listed.canonical
        self._take_in(node, listed)
        return node

    def _parent(self, head: Head) -> Node | None:
        """What an entry hangs on; None where that is not here."""
        if head.parent == head.namespace:
            return self.tree.root(head.namespace)
        return self.block(head.parent)

    def _take_in(self, entry: Node | Mark, listed: Listed) -> None:
        entry.hits, entry.clock = listed.hits, listed.used_s
        self._count(entry, listed.head, listed.key, disk_bytes(listed.nbytes, len(listed.tokens)))
        if isinstance(entry, Mark):
            self._offer(entry)

    def _hang(self, parent: Node, head: Head, nbytes: int) -> Mark:
        kind = None if head.kind is EntryKind.LOGITS else _stop_kind(head.stop)
        mark = Mark(parent, head.tokens, kind, nbytes=nbytes, canonical=head.canonical)
        self.tree.add_mark(mark)
        return mark

    def _count(self, entry: Node | Mark, head: Head, key: bytes, nbytes: int) -> None:
        entry.payload = OnDisk(head.namespace, key, head.kind, nbytes)
        self._entries[key] = entry
        self.used_bytes += nbytes
        if isinstance(entry, Node):
            self.blocks += 1
        else:
            self.marks += 1

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, key: bytes) -> bool:
        return key in self._entries

    def block(self, key: bytes) -> Node | None:
        """The block of that key; None where it is not here."""
        entry = self._entries.get(key)
        return entry if isinstance(entry, Node) else None

    def first_wrong(self, entry: Node | Mark) -> Node | Mark | None:
        """The first on the way to `entry`, itself included, whose key is not the digest of the tokens it
        stands behind: what its file holds belongs to other tokens."""
        node = entry.node if isinstance(entry, Mark) else entry
        path: list[Node] = []
        while node is not None and node.parent is not None:
            path.append(node)
            node = node.parent
        for block in reversed(path):
            assert block.parent is not None
            if chain_key(block.parent.key, block.tokens) != block.key:
                return block
        if isinstance(entry, Mark) and entry.node is not None and isinstance(entry.payload, OnDisk):
            key = chain_key(entry.node.key, entry.tail + entry.payload.kind.encode())
            return None if key == entry.payload.key else entry
        return None

    def match(self, namespace: bytes, prompt: TokenBytes) -> Match:
        return self.tree.match(namespace, prompt)

    # Coming and going

    def keep_parent(self, head: Head) -> Node | None:
        """Pins what an entry hangs on, until `unpin`; None where that is not here."""
        parent = self._parent(head)
        if parent is not None:
            self.pin(parent)
        return parent

    def add(self, head: Head, file_bytes: int) -> Node | Mark | None:
        """Announces an entry of `file_bytes` that is about to be written. None: it is here already,
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
            entry = self._hang(parent, head, file_bytes)
        entry.clock = time.time()
        self._count(entry, head, head.key, disk_bytes(file_bytes, len(head.tokens)))
        self._offer(entry)
        return entry

    def _supersede(self, shorter: Node, longer: Node) -> None:
        """A partial block goes when a longer one that begins with it comes; its marks and pins stay."""
        longer.hits = shorter.hits
        self.tree.detach(shorter, longer)
        assert isinstance(shorter.payload, OnDisk)
        self._superseded.append(shorter.payload)
        self._uncount(shorter)
        pins = self._pins.pop(shorter, 0)
        if pins:
            self._pins[longer] = self._pins.get(longer, 0) + pins

    def take_superseded(self) -> list[OnDisk]:
        """Partial blocks that were replaced since the last call: their files may go once the longer
        ones are written."""
        taken, self._superseded = self._superseded, []
        return taken

    def drop(self, entry: Node | Mark) -> list[Entry]:
        """Takes out an entry, and with a block all that needs it; answers what went, leaves first."""
        if isinstance(entry, Mark):
            if entry.node is None:
                return []
            self.tree.remove_mark(entry)
            self._uncount(entry)
            return [entry]
        if entry.removed:
            return []
        gone: list[Entry] = []
        parent = entry.parent
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
        if parent is not None:
            self._offer(parent)
        return gone

    def _uncount(self, entry: Node | Mark) -> None:
        assert isinstance(entry.payload, OnDisk)
        self._entries.pop(entry.payload.key, None)
        self.used_bytes -= entry.payload.nbytes
        if isinstance(entry, Node):
            self.blocks -= 1
        else:
            self.marks -= 1
        self._queue.forget(entry)

    # Use and eviction

    def pin(self, node: Node) -> None:
        """Keeps `node` and all before it until `unpin`."""
        self._pins[node] = self._pins.get(node, 0) + 1

    def unpin(self, node: Node) -> None:
        """Undoes one `pin` of `node` or of the block it has been replaced by."""
        node = resolve(node)
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
        while self.used_bytes > limit_bytes:
            entry = self._queue.take()
            if entry is None:
                return
            assert isinstance(entry, Node | Mark)
            for gone in self.drop(entry):
                self.evicted += 1
                yield gone

    def _evictable(self, entry: Entry) -> bool:
        if isinstance(entry, Mark):
            return entry.node is not None
        assert isinstance(entry, Node)
        return not entry.removed and entry.level > 0 and not entry.children and entry not in self._pins

    def _offer(self, entry: Entry) -> None:
        if self._evictable(entry):
            self._queue.offer(entry)


def _priority(entry: Entry) -> float:
    """The time of the last use; a GRID checkpoint is scaffolding until it was used once."""
    if isinstance(entry, Mark) and entry.kind is StopKind.GRID and not entry.hits:
        return 0.0
    return entry.clock


def _stop_kind(text: str) -> StopKind:
    """Why a checkpoint was taken; of a reason that is not known here, the least important one."""
    try:
        return StopKind(text)
    except ValueError:
        return StopKind.GRID


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
