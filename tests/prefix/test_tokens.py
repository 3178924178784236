"""Token runs and their longest common prefix."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from headstart.prefix.tokens import common_prefix, token_run

ids = st.lists(st.integers(0, 2), max_size=12)


@given(a=ids, b=ids)
def test_common_prefix_equals_counting_one_by_one(a: list[int], b: list[int]) -> None:
    n = 0
    while n < min(len(a), len(b)) and a[n] == b[n]:
        n += 1
    assert common_prefix(token_run(a), token_run(b)) == n


def test_token_run_is_int32_and_copies_only_where_it_must() -> None:
    ready = np.arange(3, dtype=np.int32)
    assert token_run(ready) is ready
    assert token_run(range(3)).dtype == np.int32
    strided = token_run(np.arange(6, dtype=np.int64)[::2])
    assert strided.dtype == np.int32 and strided.flags.c_contiguous
