"""Token runs: the one form in which token ids travel through headstart."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

TokenRun = npt.NDArray[np.int32]
"""A run of token ids, one dimension, int32."""

EMPTY: TokenRun = np.empty(0, dtype=np.int32)


def token_run(ids: Iterable[int] | TokenRun) -> TokenRun:
    """`ids` as a contiguous int32 array; no copy where it already is one."""
    if isinstance(ids, np.ndarray):
        return np.ascontiguousarray(ids, dtype=np.int32)
    return np.fromiter(ids, dtype=np.int32)


def common_prefix(a: TokenRun, b: TokenRun) -> int:
    """How many tokens `a` and `b` share from the start."""
    n = min(len(a), len(b))
    differs = a[:n] != b[:n]
    first = int(differs.argmax()) if n else 0
    return first if n and differs[first] else n
