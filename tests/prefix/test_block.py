"""Row bytes: cut anywhere and joined again they are the same rows."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from headstart.prefix.block import RowBytes
from tests.prefix.fake import DENSE, MY, RECURRENT, WINDOW, counting, rows_of, same_rows


@given(cuts=st.lists(st.integers(0, 30), max_size=6))
def test_rows_cut_anywhere_and_joined_are_the_same(cuts: list[int]) -> None:
    whole = rows_of(DENSE, MY, counting(0, 30), 0, 30)
    edges = [0, *sorted(cuts), 30]
    parts = [whole.cut(a, b) for a, b in pairwise(edges)]
    assert same_rows(RowBytes.join(parts), whole)
    assert sum(len(part) for part in parts) == len(whole) == 30
    assert sum(part.nbytes for part in parts) == whole.nbytes == 30 * DENSE.row_bytes


def test_a_cut_is_a_view_and_owned_is_not() -> None:
    whole = rows_of(DENSE, MY, counting(0, 9), 0, 9)
    part = whole.cut(2, 5)
    assert np.shares_memory(part.planes[0], whole.planes[0])
    assert not np.shares_memory(part.owned().planes[0], whole.planes[0])
    assert not np.shares_memory(RowBytes.join([part]).planes[0], whole.planes[0])


def test_a_layout_knows_its_kinds() -> None:
    assert (DENSE.row_bytes, DENSE.window_tokens, DENSE.recurrent) == (20, 0, False)
    assert WINDOW.window_tokens == 5
    assert RECURRENT.recurrent


def test_rows_are_copied_unless_their_memory_is_theirs_alone() -> None:
    buffer = np.arange(48, dtype=np.uint8).reshape(6, 8)
    rows = RowBytes((buffer,))
    kept = rows.owned()
    buffer[:] = 0
    assert kept.sole and kept.planes[0].any(), "a copy, because the buffer is somebody else's"
    assert kept.owned() is kept and kept.cut(0, 6) is kept
    part = kept.cut(1, 3)
    assert not part.sole, "it would keep the memory of all six rows"
    assert part.owned().planes[0].base is None
    assert RowBytes.join([part, part]).sole and RowBytes.join([part]).planes[0].base is None
