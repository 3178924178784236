"""Where the rows of a sliding window lie in a lane, and how to have them lie there again.

In a lane llama.cpp fills the window's S cells in turn and goes on at the first when it has used the
last (llama_kv_cache::find_slot): token q lies in cell q mod S, and cells of tokens that no later one
can see are taken again. Attention adds up in the order of the cells, so the same rows in other cells
give other bits.
"""

from __future__ import annotations

__all__ = ["cut_leaves_places", "runs"]

Run = tuple[int, int]
"""Positions start..stop in consecutive cells."""


def runs(position: int, cells: int) -> list[Run]:
    """Positions to put into an empty ring, from its first cell on, so that it is that of a cold run at
    `position`, once positions from `position` on are taken out again.

    Where the ring has gone round, that is one: it stands in the cell the next token will take, and
    taking it out moves the search for a free cell there (llama_kv_cache::seq_rm). The oldest token,
    which a cold run still has in that cell, is left out; the next token replaces it anyway.
    """
    if position < cells:
        return [(0, position)]
    turn = position - position % cells
    return [(turn, position + 1), (position - cells + 1, turn)]


def cut_leaves_places(position: int, lowest: int, cells: int) -> bool:
    """Whether taking out the tokens from `position` on leaves the ring of a cold run at `position`.

    `lowest` is the lowest token in the ring. Either the ring has not gone round, or it still holds
    the last token of the turn before: then its last cell is in use, as in a cold run, the tokens taken
    out lie in one stretch whose start is where llama.cpp goes on, and more cells are in use than lie
    before it (where far fewer are, llama.cpp would go back to the first).
    """
    return lowest == 0 or position - lowest > position % cells
