"""Chunk choice: budgets, stops and the grid, as properties."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headstart.serving.chunking import LONG_PREFILL_SHARE, Prefill, chunk_end, next_prefill


@given(
    position=st.integers(0, 300),
    length=st.integers(1, 300),
    stops=st.lists(st.integers(0, 700), unique=True).map(sorted),
    budget=st.integers(1, 64),
    grid=st.sampled_from([0, 1, 7, 32]),
)
def test_a_chunk_makes_progress_and_never_passes_a_stop(
    position: int, length: int, stops: list[int], budget: int, grid: int
) -> None:
    prefill = Prefill(position, position + length, tuple(stops))
    end = chunk_end(prefill, budget, grid)
    assert position < end <= min(position + budget, prefill.target)
    assert not [stop for stop in stops if position < stop < end]
    if grid:
        assert end // grid == position // grid or end % grid == 0


@given(start=st.integers(0, 500), grid=st.sampled_from([8, 32]), length=st.integers(1, 400))
def test_grid_chunks_are_the_same_wherever_reading_begins(start: int, grid: int, length: int) -> None:
    """From any grid position on, the chunks are those of a run from zero: invariant 16b."""
    start = start // grid * grid
    target = start + length

    def ends(position: int) -> list[int]:
        found = []
        while position < target:
            position = chunk_end(Prefill(position, target, ()), grid, grid)
            found.append(position)
        return found

    assert ends(start) == [end for end in ends(0) if end > start]


def test_least_left_goes_first_and_the_oldest_gets_its_share() -> None:
    prefills = [Prefill(0, 10_000, ()), Prefill(50, 90, ()), Prefill(0, 300, ())]
    chosen = [next_prefill(prefills, turn) for turn in range(LONG_PREFILL_SHARE * 2)]
    assert chosen.count(0) == 2
    assert set(chosen) == {0, 1}
