"""Drafts from the text itself: what followed the last time the same few tokens stood there."""

from __future__ import annotations

import numpy as np

from headstart.prefix.tokens import TokenRun

LONGEST, SHORTEST = 4, 2
"""How many of the last tokens must stand earlier in the text. One alone says too little."""


def ngram_draft(tokens: TokenRun, most: int) -> TokenRun:
    """Up to `most` tokens that followed an earlier occurrence of the end of `tokens`; empty without one.

    The longest suffix of SHORTEST..LONGEST tokens decides. Of several occurrences the latest counts
    that has `most` tokens after it, else the first, which has the most.
    """
    size = len(tokens)
    ends = np.flatnonzero(tokens[:-1] == tokens[-1]) if size > 1 else np.empty(0, dtype=np.intp)
    length = 1 if len(ends) else 0
    while length and length < LONGEST:
        kept = ends[ends >= length]
        kept = kept[tokens[kept - length] == tokens[size - 1 - length]] if size > length else kept[:0]
        if not len(kept):
            break
        ends, length = kept, length + 1
    if length < SHORTEST or most < 1:
        return tokens[:0].copy()
    full = ends[ends + most < size]
    end = int(full[-1]) if len(full) else int(ends[0])
    return tokens[end + 1 : end + 1 + most].copy()


class NgramDrafter:
    """Prompt lookup for one request. Keeps nothing."""

    def propose(self, tokens: TokenRun, most: int) -> TokenRun:
        """Up to `most` tokens that may follow `tokens`."""
        return ngram_draft(tokens, most)

    def close(self) -> None:
        """Nothing to free."""
