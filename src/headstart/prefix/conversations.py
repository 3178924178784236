"""Conversations in a store: what can be resumed, told by its leaves.

A store's blocks form a tree in each namespace; a *conversation* is the path from the root to a leaf,
named by the leaf's key. Blocks that several conversations begin with are stored once.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from operator import attrgetter

from headstart.prefix.blockfile import EntryKind
from headstart.prefix.catalog import Listed
from headstart.prefix.keys import TOKEN_BYTES, shared_tokens

HEAD_TOKENS = 48
"""Tokens of a conversation's beginning, and of its own part, that are shown."""


@dataclass(frozen=True)
class Conversation:
    """One leaf and what it takes to resume there.

    `path`: its blocks, first to last; `marks`: state at exact positions on it. `shared_tokens`: how many
    leading tokens another conversation has too. `nbytes`: of all its files; `own_nbytes`: of those no
    other conversation needs. `head`, `own`: token ids of its beginning and from where it is alone.
    """

    namespace: bytes
    path: tuple[Listed, ...]
    marks: tuple[Listed, ...]
    tokens: int
    shared_tokens: int
    nbytes: int
    own_nbytes: int
    hits: int
    used_s: float
    head: tuple[int, ...]
    own: tuple[int, ...]

    @property
    def key(self) -> bytes:
        return self.path[-1].key

    @property
    def entries(self) -> tuple[Listed, ...]:
        return self.path + self.marks


@dataclass
class Forest:
    """The entries of an inventory by what they hang on. `children` are sorted by their tokens; `marks`
    are by the tokens from the end of what they hang on to their position."""

    blocks: dict[bytes, Listed] = field(default_factory=dict)
    children: dict[bytes, list[Listed]] = field(default_factory=dict)
    marks: dict[bytes, dict[bytes, list[Listed]]] = field(default_factory=dict)
    stray: list[Listed] = field(default_factory=list)


_tokens = attrgetter("head.tokens")


def forest(entries: Iterable[Listed]) -> Forest:
    """`entries` as trees. Those whose parent, or whose position's rows, are not there are stray."""
    trees = Forest()
    waiting: list[Listed] = []
    for entry in sorted(entries, key=attrgetter("head.level", "head.tokens")):
        head = entry.head
        if head.kind is not EntryKind.BLOCK:
            waiting.append(entry)
        elif head.parent == head.namespace or head.parent in trees.blocks:
            trees.blocks[entry.key] = entry
            trees.children.setdefault(head.parent, []).append(entry)
        else:
            trees.stray.append(entry)
    for mark in waiting:
        head = mark.head
        siblings = trees.children.get(head.parent, [])
        at = bisect_left(siblings, head.tokens, key=_tokens)
        if at < len(siblings) and siblings[at].tokens.startswith(head.tokens):
            trees.marks.setdefault(head.parent, {}).setdefault(head.tokens, []).append(mark)
        else:
            trees.stray.append(mark)
    return trees


def conversations(trees: Forest) -> Iterator[Conversation]:
    """Every leaf of `trees`, the one used last first."""
    leaves = [block for key, block in trees.blocks.items() if not trees.children.get(key)]
    users: Counter[bytes] = Counter()
    lengths = {parent: sorted({len(tail) for tail in marks}) for parent, marks in trees.marks.items()}
    paths = [_path(trees, leaf) for leaf in leaves]
    found = [(path, _marks(trees, lengths, path)) for path in paths]
    for path, marks in found:
        users.update(entry.key for entry in path + marks)
    read = [_conversation(trees, path, marks, users) for path, marks in found]
    yield from sorted(read, key=lambda one: (-one.used_s, one.key))


def _path(trees: Forest, leaf: Listed) -> tuple[Listed, ...]:
    path = [leaf]
    while (parent := trees.blocks.get(path[-1].parent)) is not None:
        path.append(parent)
    return tuple(reversed(path))


def _marks(trees: Forest, lengths: dict[bytes, list[int]], path: tuple[Listed, ...]) -> tuple[Listed, ...]:
    """State whose position lies on `path`, in order of position. `lengths`: of the marks' tails, by what
    they hang on."""
    found: list[Listed] = []
    for block in path:
        parent, tokens = block.parent, block.tokens
        for length in lengths.get(parent, ()):
            if length <= len(tokens):
                found += trees.marks[parent].get(tokens[:length], ())
    return tuple(found)


def _conversation(
    trees: Forest, path: tuple[Listed, ...], marks: tuple[Listed, ...], users: Counter[bytes]
) -> Conversation:
    entries = path + marks
    own = [entry for entry in entries if users[entry.key] == 1] or [path[-1]]
    text = b"".join(block.tokens for block in path)
    shared = _shared(trees, path, users)
    return Conversation(
        namespace=path[0].namespace,
        path=path,
        marks=marks,
        tokens=len(text) // TOKEN_BYTES,
        shared_tokens=shared,
        nbytes=sum(entry.nbytes for entry in entries),
        own_nbytes=sum(entry.nbytes for entry in entries if users[entry.key] == 1),
        hits=max(entry.hits for entry in own),
        used_s=max(entry.used_s for entry in own),
        head=token_ids(text[: HEAD_TOKENS * TOKEN_BYTES]),
        own=token_ids(text[shared * TOKEN_BYTES : (shared + HEAD_TOKENS) * TOKEN_BYTES]),
    )


def _shared(trees: Forest, path: tuple[Listed, ...], users: Counter[bytes]) -> int:
    """Leading tokens of `path` that another conversation has too, exact to the token."""
    whole = 0
    for block in path:
        if users[block.key] > 1:
            whole += len(block.tokens) // TOKEN_BYTES
            continue
        siblings, tokens = trees.children[block.parent], block.tokens
        at = bisect_left(siblings, tokens, key=_tokens)  # its neighbours share most with it
        others = siblings[max(0, at - 1) : at] + siblings[at + 1 : at + 2]
        return whole + max((shared_tokens(other.tokens, tokens) for other in others), default=0)
    return whole


def token_ids(data: bytes) -> tuple[int, ...]:
    """Token bytes as token ids."""
    return tuple(
        int.from_bytes(data[at : at + TOKEN_BYTES], "big") for at in range(0, len(data), TOKEN_BYTES)
    )
