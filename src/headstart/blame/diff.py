"""Where two prompts part, and what became of the pieces behind that place.

Everything here is linear in the text, but for the order of moved pieces (n log n in their number).
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from headstart.blame.exchange import Dialect
from headstart.blame.finding import Change
from headstart.blame.prompt import Piece, Prompt

_RAW = (Dialect.OPENAI_COMPLETIONS, Dialect.OLLAMA_GENERATE)

Key = tuple[str, str, str, str]


def key(piece: Piece) -> Key:
    """What of a piece is rendered."""
    return (piece.kind.value, piece.role, piece.name, piece.text)


def common_length(left: str, right: str) -> int:
    """Characters that both texts begin with."""
    end = min(len(left), len(right))
    if left[:end] == right[:end]:
        return end
    low, high = 0, end
    while high - low > 1:
        middle = (low + high) // 2
        if left[low:middle] == right[low:middle]:
            low = middle
        else:
            high = middle
    return low


def common_end(left: str, right: str, start: int) -> int:
    """Characters that both texts end with, not reaching into their first `start`."""
    most = min(len(left), len(right)) - start
    low, high = 0, most
    while low < high:
        middle = (low + high + 1) // 2
        if left[len(left) - middle :] == right[len(right) - middle :]:
            low = middle
        else:
            high = middle - 1
    return low


def change(before: Prompt, after: Prompt) -> Change | None:
    """Where `after` parts from `before`; None where it is equal or only goes on behind it.

    Texts of one message that are cut into blocks otherwise and read the same when joined are a change only
    where there is no other: whether they matter is up to the template.
    """
    shape: Change | None = None
    left, right = 0, 0
    while left < len(before.pieces):
        if right == len(after.pieces):
            return _at(before, after, left, right)
        one, other = before.pieces[left], after.pieces[right]
        if key(one) == key(other):
            left, right = left + 1, right + 1
            continue
        if left == len(before.pieces) - 1 and _goes_on(before, one, other):
            return shape
        runs = _same_once_joined(before.pieces, after.pieces, left, right)
        if runs is None:
            return _at(before, after, left, right)
        shape = shape or _at(before, after, left, right)
        left, right = runs
    return shape


def _goes_on(prompt: Prompt, one: Piece, other: Piece) -> bool:
    """Whether a raw prompt's last text goes on; a chat message that goes on has another end."""
    return prompt.dialect in _RAW and one.role == other.role and other.text.startswith(one.text)


def same_once_joined(change: Change) -> bool:
    """Whether at the place of `change` the blocks are cut otherwise, and nothing else."""
    before, after = change.before_prompt.pieces, change.after_prompt.pieces
    left = change.index_before if change.index_before is not None else change.index
    if left >= len(before) or change.index >= len(after):
        return False
    return _same_once_joined(before, after, left, change.index) is not None


def _at(before: Prompt, after: Prompt, left: int, right: int) -> Change:
    one = before.pieces[left] if left < len(before.pieces) else None
    other = after.pieces[right] if right < len(after.pieces) else None
    same_kind = one and other and (one.kind, one.role, one.name) == (other.kind, other.role, other.name)
    return Change(
        before_prompt=before,
        after_prompt=after,
        index=right,
        before=one,
        after=other,
        char=common_length(one.text, other.text) if same_kind and one and other else 0,
        chars_before=sum(len(piece.text) for piece in after.pieces[:right]),
        index_before=left,
    )


def _same_once_joined(
    before: Sequence[Piece], after: Sequence[Piece], left: int, right: int
) -> tuple[int, int] | None:
    """The pieces behind both runs of texts at these places, if the runs read the same when joined."""
    starts = _run_start(before, left), _run_start(after, right)
    ends = _run_end(before, left), _run_end(after, right)
    if ends[0] - starts[0] == ends[1] - starts[1] == 1:
        return None
    one, other = before[left], after[right]
    if (one.kind, one.role, one.name) != (other.kind, other.role, other.name):
        return None
    joined = ["".join(piece.text for piece in before[starts[0] : ends[0]])]
    joined.append("".join(piece.text for piece in after[starts[1] : ends[1]]))
    return ends if joined[0] == joined[1] else None


def _alike(one: Piece, other: Piece) -> bool:
    return (one.kind, one.role, one.name, one.message, one.id) == (
        other.kind,
        other.role,
        other.name,
        other.message,
        other.id,
    )


def _run_start(pieces: Sequence[Piece], index: int) -> int:
    while index > 0 and _alike(pieces[index - 1], pieces[index]):
        index -= 1
    return index


def _run_end(pieces: Sequence[Piece], index: int) -> int:
    end = index + 1
    while end < len(pieces) and _alike(pieces[end], pieces[index]):
        end += 1
    return end


@dataclass(frozen=True)
class Edits:
    """What became of the pieces. `removed`: of before, nowhere in after. `inserted`: new in after, before its
    last piece that was there already. `moved`: kept, but out of order. `appended`: new, behind all of them.
    `kept`: how many were there already, in order or not."""

    removed: tuple[Piece, ...]
    inserted: tuple[Piece, ...]
    moved: tuple[tuple[Piece, Piece], ...]
    appended: tuple[Piece, ...]
    kept: int


def edits(change: Change) -> Edits:
    """What was taken out, put in, moved and added behind the place of `change`, matched by content."""
    left = change.index_before if change.index_before is not None else change.index
    before = change.before_prompt.pieces[left:]
    after = change.after_prompt.pieces[change.index :]
    places: defaultdict[Key, list[int]] = defaultdict(list)
    for place in range(len(after) - 1, -1, -1):
        places[key(after[place])].append(place)
    pairs: list[tuple[int, int]] = []
    removed: list[Piece] = []
    for place, piece in enumerate(before):
        found = places.get(key(piece))
        if found:
            pairs.append((place, found.pop()))
        else:
            removed.append(piece)
    taken = {place for _, place in pairs}
    last = max(taken, default=-1)
    new = [(place, piece) for place, piece in enumerate(after) if place not in taken]
    still = _in_order([place for _, place in pairs])
    return Edits(
        removed=tuple(removed),
        inserted=tuple(piece for place, piece in new if place < last),
        moved=tuple((before[one], after[other]) for one, other in pairs if other not in still),
        appended=tuple(piece for place, piece in new if place > last),
        kept=len(pairs),
    )


def _in_order(places: Sequence[int]) -> frozenset[int]:
    """The longest rising run among `places`: what did not move."""
    tails: list[int] = []
    ends: list[int] = []
    back: list[int] = []
    for index, place in enumerate(places):
        at = bisect_left(tails, place)
        if at == len(tails):
            tails.append(place)
            ends.append(index)
        else:
            tails[at], ends[at] = place, index
        back.append(ends[at - 1] if at else -1)
    kept: set[int] = set()
    index = ends[-1] if ends else -1
    while index >= 0:
        kept.add(places[index])
        index = back[index]
    return frozenset(kept)


def window(text: str, char: int, before: int = 40, after: int = 60) -> str:
    """The text around a place."""
    return text[max(0, char - before) : char + after]


def taken_out(left: str, right: str) -> str:
    """The part that `left` has and `right` has not, if that is all; "" else. Where it could begin at several
    places (as its end reads like what stands before it) it begins at the start of a line if it can."""
    start, gone, come = replaced(left, right)
    if come or not gone:
        return ""
    back = 0
    while back < start and left[start - back - 1] == gone[len(gone) - 1 - back % len(gone)]:
        back += 1
        if start == back or left[start - back - 1] == "\n":
            return left[start - back : start - back + len(gone)]
    return gone


def replaced(left: str, right: str) -> tuple[int, str, str]:
    """What stands between the common beginning and the common end: its place, its text before and after."""
    start = common_length(left, right)
    end = common_end(left, right, start)
    return start, left[start : len(left) - end], right[start : len(right) - end]
