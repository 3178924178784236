"""The index: which runs of tokens are stored, as a tree of blocks under each namespace.

A node stands for a block: up to `block_tokens` tokens after all those of its ancestors. Only a
full block has children. The children of a node are sorted by their token bytes, so the child that
shares most with a prompt is a neighbour of the place where the prompt would be inserted: a lookup
costs what the prompt costs, whatever is stored besides. No child is a prefix of its sibling.

A mark is state of one exact position: a recurrent checkpoint, or the logits at a prompt's end. It
hangs on the node whose end lies 1..block_tokens tokens before it, keyed by those tokens.

The tree holds no bytes of state; `payload` belongs to the byte store. Lookups compare token ids,
never only keys.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from operator import attrgetter
from typing import Final

from headstart.prefix.keys import TOKEN_BYTES, TokenBytes, chain_key, shared_tokens
from headstart.prefix.stops import StopKind


class _Lost:
    """Payload of an entry whose bytes turned out damaged: its rows are not there."""


LOST: Final = _Lost()

_REMOVED = -1


class Entry:
    """What eviction chooses among. `hits`: reuses; `clock`: the eviction clock at the last use.

    `priority` is the one under which the entry waits in the eviction queue, `queued` says it does.
    """

    __slots__ = ("clock", "hits", "payload", "priority", "queued")

    def __init__(self) -> None:
        self.priority = 0.0
        self.clock = 0.0
        self.hits = 0
        self.queued = False
        self.payload: object = None

    def __lt__(self, other: Entry) -> bool:
        return self.priority < other.priority


class Node(Entry):
    """A block. `level` counts blocks from the root (which is level 0 and has no tokens)."""

    __slots__ = ("canonical", "children", "key", "level", "marks", "parent", "tokens")

    def __init__(self, parent: Node | None, tokens: bytes, key: bytes) -> None:
        self.priority = self.clock = 0.0
        self.hits = 0
        self.queued = False
        self.payload: object = None
        self.parent = parent
        self.tokens = tokens
        self.key = key
        self.level: int = 0 if parent is None else parent.level + 1
        self.children: Node | list[Node] | None = None
        self.marks: Marks | None = None
        self.canonical = False

    @property
    def count(self) -> int:
        """Tokens in this block."""
        return len(self.tokens) // TOKEN_BYTES

    @property
    def removed(self) -> bool:
        return self.level == _REMOVED


class Mark(Entry):
    """State of one position. `tail`: the tokens from the end of `node` to it; `kind`: why it was
    taken, None for logits; `nbytes`: size of the payload."""

    __slots__ = ("canonical", "kind", "nbytes", "node", "tail")

    def __init__(
        self, node: Node, tail: bytes, kind: StopKind | None, *, nbytes: int, canonical: bool
    ) -> None:
        super().__init__()
        self.node: Node | None = node
        self.tail = tail
        self.kind = kind
        self.nbytes = nbytes
        self.canonical = canonical


class Marks:
    """The marks on one node, each list sorted by tail."""

    __slots__ = ("checkpoints", "logits")

    def __init__(self) -> None:
        self.checkpoints: list[Mark] = []
        self.logits: list[Mark] = []


_tokens = attrgetter("tokens")
_tail = attrgetter("tail")


@dataclass(frozen=True, eq=False, slots=True)
class Match:
    """What of a prompt is stored. `path`: the root and the blocks matched whole; `partial`: one more
    block of which `partial_tokens` (at least 1) match; `length`: tokens matched in all."""

    path: list[Node]
    partial: Node | None
    partial_tokens: int
    length: int

    @property
    def blocks(self) -> list[Node]:
        """Every block that holds matched rows, in order."""
        return self.path[1:] if self.partial is None else [*self.path[1:], self.partial]

    @property
    def used(self) -> list[Node]:
        """The blocks for which resuming here speaks: a last one of which less than half matches
        is not among them, because any other with the same beginning would have done."""
        partial = self.partial
        most = partial is not None and 2 * self.partial_tokens >= partial.count
        return self.blocks if most else self.path[1:]


class Tree:
    """Blocks and marks of all namespaces. Pure bookkeeping: no bytes, no limits, no policy."""

    def __init__(self, block_tokens: int) -> None:
        self.block_tokens = block_tokens
        self.block_bytes = block_tokens * TOKEN_BYTES
        self.roots: dict[bytes, Node] = {}

    def root(self, namespace: bytes) -> Node:
        """The root of `namespace`, made where there is none."""
        root = self.roots.get(namespace)
        if root is None:
            root = self.roots[namespace] = Node(None, b"", namespace)
        return root

    def start(self, node: Node) -> int:
        """Tokens before the first of `node`."""
        return max(0, node.level - 1) * self.block_tokens

    def stop(self, node: Node) -> int:
        """Tokens up to and with the last of `node`."""
        return self.start(node) + node.count

    def match(self, namespace: bytes, prompt: TokenBytes) -> Match:
        """The longest stored prefix of `prompt`, compared token by token."""
        root = self.roots.get(namespace)
        if root is None:
            return Match([], None, 0, 0)
        path = [root]
        node, at, width = root, 0, self.block_bytes
        while True:
            child = node.children
            if isinstance(child, Node):
                if prompt.startswith(child.tokens, at) and child.payload is not LOST:
                    shared = child.count
                elif child.payload is LOST:
                    shared = 0
                else:
                    shared = shared_tokens(child.tokens, prompt[at : at + width])
            else:
                child, shared = closest_child(node, prompt[at : at + width])
            if child is None or not shared:
                return Match(path, None, 0, at // TOKEN_BYTES)
            if shared < self.block_tokens:
                return Match(path, child, shared, at // TOKEN_BYTES + shared)
            path.append(child)
            node, at = child, at + width

    def attach(self, parent: Node, tokens: bytes, key: bytes | None = None) -> Node:
        """A new child of `parent`. The caller has made sure that no sibling starts with `tokens`.
        `key`: its chain key where it is known already."""
        node = Node(parent, tokens, key or chain_key(parent.key, tokens))
        siblings = parent.children
        if siblings is None:
            parent.children = node
        elif isinstance(siblings, Node):
            parent.children = [siblings, node] if siblings.tokens < tokens else [node, siblings]
        else:
            siblings.insert(bisect_left(siblings, tokens, key=_tokens), node)
        return node

    def detach(self, node: Node, successor: Node | None = None) -> list[Mark]:
        """Takes a childless `node` out; answers the marks that lost their last rows and went with it.

        `successor` is the block that took its place; `resolve` follows to it.
        """
        parent = node.parent
        assert parent is not None and node.children is None
        marks = dependents(parent, node)
        for mark in marks:
            self.remove_mark(mark)
        siblings = parent.children
        if isinstance(siblings, list):
            del siblings[bisect_left(siblings, node.tokens, key=_tokens)]
            if len(siblings) == 1:
                parent.children = siblings[0]
        else:
            parent.children = None
        node.parent, node.level, node.children, node.tokens = None, _REMOVED, successor, b""
        return marks

    def add_mark(self, mark: Mark) -> None:
        """Hangs `mark` on its node. The caller has made sure that there is none at its place."""
        node = mark.node
        assert node is not None
        if node.marks is None:
            node.marks = Marks()
        marks = node.marks.logits if mark.kind is None else node.marks.checkpoints
        marks.insert(bisect_left(marks, mark.tail, key=_tail), mark)

    def remove_mark(self, mark: Mark) -> None:
        node = mark.node
        assert node is not None and node.marks is not None
        for marks in (node.marks.checkpoints, node.marks.logits):
            at = bisect_left(marks, mark.tail, key=_tail)
            if at < len(marks) and marks[at] is mark:
                del marks[at]
        if not node.marks.checkpoints and not node.marks.logits:
            node.marks = None
        mark.node = None

    def position(self, mark: Mark) -> int:
        """The position whose state `mark` is."""
        assert mark.node is not None
        return mark.node.level * self.block_tokens + len(mark.tail) // TOKEN_BYTES

    def checkpoint_below(self, mark: Mark) -> int:
        """Position of the highest checkpoint before `mark` on its path, 0 for none."""
        node, upto = mark.node, mark.tail[:-TOKEN_BYTES]
        while node is not None:
            found = next(prefixes(node.marks.checkpoints, upto), None) if node.marks else None
            if found is not None:
                return self.position(found)
            upto = node.tokens
            node = node.parent
        return 0

    def checkpoints(self, match: Match, prompt: TokenBytes, limit: int) -> Iterator[tuple[int, Mark]]:
        """Checkpoints on the matched path at positions 1..limit, the highest first."""
        limit = min(limit, match.length)
        for node in reversed(match.path):
            if node.marks is None:
                continue
            start = node.level * self.block_tokens
            if start < limit:
                stop = min(limit, start + self.block_tokens)
                tail = prompt[start * TOKEN_BYTES : stop * TOKEN_BYTES]
                for mark in prefixes(node.marks.checkpoints, tail):
                    yield start + len(mark.tail) // TOKEN_BYTES, mark

    def logits(self, match: Match, prompt: TokenBytes) -> Mark | None:
        """Logits stored at exactly the end of `prompt`, where all its rows are present."""
        length = len(prompt) // TOKEN_BYTES
        if not length or match.length != length:
            return None
        node = match.path[(length - 1) // self.block_tokens]
        tail = prompt[node.level * self.block_bytes :]
        return None if node.marks is None else at_tail(node.marks.logits, tail)


def resolve(node: Node) -> Node:
    """`node`, or the longer block that has taken its place since."""
    while node.removed and isinstance(node.children, Node):
        node = node.children
    return node


def neighbours(parent: Node, tokens: bytes) -> Iterator[Node]:
    """Children of `parent` around the place of `tokens`: on each side the nearest that is not lost.

    One of them shares the most tokens with `tokens` of all children that are not lost.
    """
    children = parent.children
    if children is None:
        return
    if isinstance(children, Node):
        children = [children]
    at = bisect_left(children, tokens, key=_tokens)
    for side in (range(at, len(children)), range(at - 1, -1, -1)):
        for index in side:
            if children[index].payload is not LOST:
                yield children[index]
                break


def closest_child(parent: Node, tokens: bytes) -> tuple[Node | None, int]:
    """The child of `parent` that shares most tokens with `tokens`, and how many it shares."""
    best: Node | None = None
    most = 0
    for child in neighbours(parent, tokens):
        shared = shared_tokens(child.tokens, tokens)
        if shared > most:
            best, most = child, shared
    return best, most


def child_starting_with(parent: Node, tokens: bytes) -> Node | None:
    """The child of `parent` whose tokens begin with `tokens`, lost or not."""
    children = parent.children
    if isinstance(children, Node):
        return children if children.tokens.startswith(tokens) else None
    at = bisect_left(children, tokens, key=_tokens) if children else 0
    if children and at < len(children) and children[at].tokens.startswith(tokens):
        return children[at]
    return None


def child_prefix_of(parent: Node, tokens: bytes) -> Node | None:
    """The child of `parent` that is a beginning of `tokens`, lost or not: at most one can be."""
    children = parent.children
    if isinstance(children, Node):
        return children if tokens.startswith(children.tokens) else None
    at = bisect_right(children, tokens, key=_tokens) if children else 0
    if children and at and tokens.startswith(children[at - 1].tokens):
        return children[at - 1]
    return None


def dependents(parent: Node, child: Node) -> list[Mark]:
    """Marks on `parent` whose rows `child` has and no other child: they go when it goes."""
    marks = parent.marks
    if marks is None:
        return []
    found = [*prefixes(marks.checkpoints, child.tokens), *prefixes(marks.logits, child.tokens)]
    return [mark for mark in found if not _covered_twice(parent, mark.tail)]


def _covered_twice(parent: Node, tail: bytes) -> bool:
    children = parent.children
    if not isinstance(children, list):
        return False
    second = bisect_left(children, tail, key=_tokens) + 1
    return second < len(children) and children[second].tokens.startswith(tail)


def covered(parent: Node, tail: bytes) -> bool:
    """Whether a child of `parent` has rows for all tokens of `tail`."""
    return child_starting_with(parent, tail) is not None


def prefixes(marks: list[Mark], tokens: bytes) -> Iterator[Mark]:
    """The marks whose tail is a beginning of `tokens`, longest first. `marks` is sorted by tail."""
    while tokens:
        at = bisect_right(marks, tokens, key=_tail)
        if not at:
            return
        mark = marks[at - 1]
        if tokens.startswith(mark.tail):
            yield mark
            tokens = mark.tail[:-TOKEN_BYTES]
        else:
            tokens = tokens[: TOKEN_BYTES * shared_tokens(mark.tail, tokens)]


def at_tail(marks: list[Mark], tail: bytes) -> Mark | None:
    """The mark whose tail is exactly `tail`."""
    at = bisect_left(marks, tail, key=_tail)
    return marks[at] if at < len(marks) and marks[at].tail == tail else None
