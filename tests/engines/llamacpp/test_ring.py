"""The ring against a model of llama.cpp's search for cells, and against llama.cpp itself in test_lanes."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headstart.engines.llamacpp.ring import cut_leaves_places, runs

WINDOW = 5
CELLS = 16
STEPS = st.lists(st.integers(1, CELLS - WINDOW), max_size=12)


@dataclass
class Cells:
    """llama_kv_cache for one sequence: find_slot, apply_ubatch and seq_rm of llama.cpp, nothing else."""

    held: list[int | None] = field(default_factory=lambda: [None] * CELLS)
    head: int = 0
    position: int = 0

    def read(self, count: int) -> None:
        self.place(list(range(self.position, self.position + count)))

    def place(self, positions: list[int]) -> None:
        used = sum(cell is not None for cell in self.held)
        head = 0 if self.head > used + 2 * len(positions) else self.head
        last = max((cell for cell in self.held if cell is not None), default=-1)
        found: list[int] = []
        for _ in range(2 * CELLS):
            if len(found) == len(positions):
                break
            head = head % CELLS
            cell = self.held[head]
            if cell is None or last + 1 - cell >= WINDOW:
                found.append(head)
            head += 1
        assert len(found) == len(positions)
        overwritten = [cell for index in found if (cell := self.held[index]) is not None]
        for index, position in zip(found, positions, strict=True):
            self.held[index] = position
        if overwritten:
            self.held = [
                None if cell is not None and cell <= max(overwritten) else cell for cell in self.held
            ]
        self.head = found[-1] + 1
        self.position = max(positions) + 1

    def remove(self, start: int) -> None:
        freed = [i for i, cell in enumerate(self.held) if cell is not None and cell >= start]
        for index in freed:
            self.held[index] = None
        if freed and freed[0] < self.head:
            self.head = freed[0]
        self.position = start

    def seen(self) -> list[int | None]:
        """What attention sees, cell by cell; and the highest cell in use, which is how far it looks."""
        in_use = max((i for i, cell in enumerate(self.held) if cell is not None), default=-1)
        return [
            cell if cell is not None and self.position - cell < WINDOW else None
            for cell in self.held[: in_use + 1]
        ]


def cold(steps: list[int]) -> Cells:
    cells = Cells()
    for count in steps:
        cells.read(count)
    return cells


def assert_go_on_alike(a: Cells, b: Cells, steps: list[int]) -> None:
    for count in steps:
        a.read(count)
        b.read(count)
        assert a.seen() == b.seen()


@given(STEPS, STEPS)
def test_a_token_lies_in_its_place(before: list[int], after: list[int]) -> None:
    cells = cold(before + after)
    for index, position in enumerate(cells.held):
        assert position is None or position % CELLS == index


@given(STEPS, STEPS)
def test_a_filled_ring_goes_on_like_a_cold_one(before: list[int], after: list[int]) -> None:
    position = sum(before)
    restored = Cells()
    if position:
        restored.place([at for start, stop in runs(position, CELLS) for at in range(start, stop)])
    restored.remove(position)
    assert_go_on_alike(restored, cold(before), after)


def cut_plainly(cells: Cells, position: int) -> bool:
    """Cuts the ring where the window's rows are there and a plain cut is allowed; whether it was."""
    held = [cell for cell in cells.held if cell is not None]
    if min(held) > max(0, position - WINDOW + 1):
        return False
    if not cut_leaves_places(position, min(held), CELLS):
        return False
    cells.remove(position)
    return True


@pytest.mark.parametrize("chunk", [1, 3, 7])
def test_every_plain_cut_that_is_allowed_goes_on_like_a_cold_run(chunk: int) -> None:
    allowed = 0
    for stands in range(1, 4 * CELLS):
        for position in range(1, stands):
            cells = cold([1] * stands)
            if cut_plainly(cells, position):
                allowed += 1
                assert_go_on_alike(cells, cold([1] * position), [chunk] * 20)
    assert allowed > 100


@settings(max_examples=500)
@given(st.lists(st.tuples(st.integers(1, 40), st.integers(1, 12)), min_size=2, max_size=5), st.integers(1, 9))
def test_plain_cuts_in_turn_go_on_like_a_cold_run(rounds: list[tuple[int, int]], chunk: int) -> None:
    """The lowest token is then not the cells' number before the last."""
    cells = Cells()
    for count, back in rounds:
        for _ in range(count):
            cells.read(1)
        if cells.position > back:
            cut_plainly(cells, cells.position - back)
    assert_go_on_alike(cells, cold([1] * cells.position), [chunk] * 20)


def test_a_plain_cut_is_allowed_at_all() -> None:
    assert cut_leaves_places(position=7, lowest=0, cells=CELLS)
    assert cut_leaves_places(position=20, lowest=8, cells=CELLS)
    assert not cut_leaves_places(position=30, lowest=18, cells=CELLS)
