"""Where prefill pauses."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headstart.prefix.stops import IMPORTANCE, PromptHints, Stop, StopKind, stops

NOTHING = PromptHints()


def at(*pairs: tuple[int, StopKind]) -> tuple[Stop, ...]:
    return tuple(Stop(position, kind) for position, kind in pairs)


def test_all_kinds_in_ascending_order() -> None:
    hints = PromptHints(head_end=30, message_starts=(30, 50, 70), body_end=90)
    assert stops(length=100, restore_at=0, divergence=55, hints=hints, interval=40) == at(
        (30, StopKind.HEAD),
        (40, StopKind.GRID),
        (50, StopKind.MESSAGE),
        (55, StopKind.DIVERGENCE),
        (70, StopKind.MESSAGE),
        (80, StopKind.GRID),
        (90, StopKind.BODY_END),
        (100, StopKind.PROMPT_END),
    )


def test_nothing_at_or_below_the_restore_point_and_nothing_past_the_prompt() -> None:
    hints = PromptHints(head_end=30, message_starts=(0, 30, 50, 101), body_end=400)
    assert stops(length=100, restore_at=30, divergence=30, hints=hints, interval=0) == at(
        (50, StopKind.MESSAGE), (100, StopKind.PROMPT_END)
    )


def test_the_divergence_is_a_stop_when_something_has_to_be_replayed() -> None:
    assert stops(length=100, restore_at=20, divergence=60, hints=NOTHING, interval=0) == at(
        (60, StopKind.DIVERGENCE), (100, StopKind.PROMPT_END)
    )


def test_a_long_first_read_keeps_every_message_stop() -> None:
    starts = tuple(range(100, 50_000, 100))
    found = stops(
        length=50_000, restore_at=0, divergence=0, hints=PromptHints(message_starts=starts), interval=2048
    )
    assert {s.position for s in found if s.kind is StopKind.MESSAGE} == set(starts)
    assert {s.position for s in found} >= set(range(2048, 50_001, 2048))


def test_an_exact_restore_leaves_nothing_to_stop_for() -> None:
    assert stops(length=10, restore_at=10, divergence=10, hints=NOTHING, interval=2) == ()


positions = st.integers(-3, 80)


@given(
    length=st.integers(1, 60),
    restore_at=st.integers(0, 60),
    divergence=st.integers(0, 60),
    head_end=st.none() | positions,
    starts=st.lists(positions, max_size=5),
    body_end=st.none() | positions,
    interval=st.integers(0, 20),
    grid=st.sampled_from([0, 0, 4, 8]),
)
def test_the_rule(
    *,
    length: int,
    restore_at: int,
    divergence: int,
    head_end: int | None,
    starts: list[int],
    body_end: int | None,
    interval: int,
    grid: int,
) -> None:
    hints = PromptHints(head_end, tuple(starts), body_end)
    found = stops(
        length=length, restore_at=restore_at, divergence=divergence, hints=hints, interval=interval, grid=grid
    )
    wanted: dict[int, set[StopKind]] = {}
    named = [(divergence, StopKind.DIVERGENCE), (length, StopKind.PROMPT_END)]
    named += [(start, StopKind.MESSAGE) for start in starts]
    named += [] if head_end is None else [(head_end, StopKind.HEAD)]
    named += [] if body_end is None else [(body_end, StopKind.BODY_END)]
    if interval:
        named += [(p, StopKind.GRID) for p in range(1, length + 1) if p % interval == 0]
    for position, kind in named:
        place = position - position % grid if grid else position
        if restore_at < place <= length:
            wanted.setdefault(place, set()).add(kind)
    assert [s.position for s in found] == sorted(wanted)
    for stop in found:
        assert stop.kind is min(wanted[stop.position], key=IMPORTANCE.index)
