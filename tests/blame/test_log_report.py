"""What events amount to."""

from __future__ import annotations

import pytest

from headstart.blame.log_report import report_of
from headstart.blame.log_tallies import KEPT_TURNS, Grain
from headstart.blame.logs.events import (
    Checkpoint,
    Evicted,
    Fact,
    FullReread,
    Interval,
    Loaded,
    LogEvent,
    Picked,
    Restored,
    Started,
    Turn,
)


def turn(
    prompt: int, cached: int, shared: int | None = None, held: int | None = None, **more: object
) -> Turn:
    """A turn read at a millisecond a token."""
    read = prompt - cached
    return Turn(
        "llama-server",
        0,
        prompt_tokens=prompt,
        cached=cached,
        read=read,
        prompt_ms=float(read),
        shared=shared,
        held=held,
        **more,  # type: ignore[arg-type]
    )


def test_totals_and_speed() -> None:
    report = report_of([turn(1000, 0), turn(1200, 1000, 1000, 1000)])
    totals = report.totals
    assert (totals.turns, totals.prompt_tokens, totals.cached, totals.read) == (2, 2200, 1000, 1200)
    assert totals.ms_a_token == 1.0
    assert report.seconds(500) == 0.5
    assert report.gap.turns == report.changed.turns == report.replaced.turns == 0


def test_a_turn_without_numbers_is_counted_and_no_more() -> None:
    report = report_of([Turn("mlx-lm", read=700), Turn("mlx-lm", prompt_tokens=900)])
    assert (report.totals.turns, report.totals.counted, report.totals.read) == (2, 0, 700)
    assert report.seconds(9) is None
    assert report.turns[0].number == 1


def test_a_gap_is_what_was_held_and_read_again() -> None:
    report = report_of([turn(5000, 0), turn(5200, 3000, 4900, 5100)])
    assert (report.gap.tokens, report.gap.turns) == (1900, 1)
    assert report.gap.worst is not None
    assert report.gap.worst.number == 2
    assert report.changed.turns == 0


def test_a_rounded_similarity_makes_no_gap() -> None:
    near = turn(100_000, 99_880, 99_950, 100_000, shared_within=50)
    assert report_of([turn(100_000, 0), near]).gap.turns == 0


@pytest.mark.parametrize("gap", [64, 65])
def test_the_last_tokens_are_always_read(gap: int) -> None:
    assert report_of([turn(5000, 0), turn(5200, 5000 - gap, 5000, 5000)]).gap.turns == (gap > 64)


def test_a_change_loses_what_stood_behind_it() -> None:
    report = report_of([turn(5000, 0), turn(5100, 40, 40, 5050), turn(5200, 41, 41, 5150)])
    assert (report.changed.tokens, report.changed.turns) == (5010 + 5109, 2)
    assert report.places.most_common(1) == [(40, 2)]
    assert report.gap.turns == 0


def test_a_short_tail_that_changed_is_no_early_change() -> None:
    assert report_of([turn(5000, 0), turn(5100, 4850, 4850, 5050)]).changed.turns == 0


def test_a_slot_taken_by_age_shared_little() -> None:
    events: list[LogEvent] = [turn(5000, 0), turn(5100, 3, picked=Picked.LRU, shared_most=510)]
    report = report_of(events)
    assert (report.replaced.tokens, report.replaced.turns) == (5000 - 510, 1)


def test_what_the_memory_cache_gave_back_was_shared_after_all() -> None:
    events: list[LogEvent] = [turn(5000, 0), turn(5100, 4990, picked=Picked.LRU, shared_most=510)]
    assert report_of(events).replaced.turns == 0


def test_a_title_request_pushes_a_conversation_out() -> None:
    title = turn(200, 0, picked=Picked.LRU, shared_most=20)
    again = turn(5300, 0, picked=Picked.LRU, shared_most=530)
    report = report_of([turn(5000, 0), title, again])
    assert (report.side.tokens, report.side.turns) == (5000, 1)
    assert report.replaced.turns == 0
    kept = report_of([turn(5000, 0), title, turn(5300, 4990, picked=Picked.LRU)])
    assert kept.side.turns == 0
    assert kept.replaced.turns == 0


@pytest.mark.parametrize(
    ("positions", "grain"),
    [
        ([8191, 16383, 32767], 8192),
        ([2048, 4096, 10240], 2048),
        ([2048, 4096], None),
        ([2048, 2048, 2048, 4096], None),
        ([1000, 1013, 5171], None),
        ([8, 16, 24], None),
    ],
)
def test_the_distance_of_restore_points(positions: list[int], grain: int | None) -> None:
    found = Grain()
    for position in positions:
        found.add(position)
    assert found.tokens == grain


def test_checkpoints() -> None:
    made = [Checkpoint(True, at, 0, 60.0, n, 32) for n, at in enumerate((1000, 3000, 7000), 1)]
    report = report_of([*made, Checkpoint(False, 7000, 0), Restored(3000, 3500, 0)])
    points = report.points
    assert (points.made, points.erased, points.restored, points.limit) == (3, 1, 1, 32)
    assert (points.spacing, points.spacing_most) == (3000, 4000)
    assert (points.least, points.most) == (1000, 7000)


def test_reloads_and_contexts() -> None:
    report = report_of(
        [
            Started("ollama", 8192),
            Loaded(9.0),
            Started("ollama", 16384),
            Loaded(4.0),
            Started("ollama", 8192),
            Loaded(3.0),
        ]
    )
    assert (report.loads, report.load_s, report.contexts) == (3, 7.0, [8192, 16384, 8192])


def test_a_notice_beside_a_reuse_was_false() -> None:
    report = report_of([FullReread(0), turn(900, 500, hint=True), FullReread(0), turn(900, 0, hint=True)])
    assert (report.hints, report.false_hints) == (2, 1)


def test_half_a_context_is_a_prompt_cut_in_two() -> None:
    cut = Turn("ollama", prompt_tokens=32_770, cached=0, read=32_770)
    events: list[LogEvent] = [Fact("context_tokens", "65536"), cut, cut]
    assert report_of(events).halves == 2


def test_intervals() -> None:
    report = report_of([Interval(0.0, 0.0), Interval(10.0, 0.0), Interval(12.0, 0.25, 0.7)])
    assert (report.intervals.busy, report.intervals.never_hit) == (2, False)
    assert (report.intervals.last_hit_share, report.intervals.fullest) == (0.25, 0.7)


def test_the_dearest_turns_are_kept() -> None:
    report = report_of(turn(1000 + n, n % 900) for n in range(3 * KEPT_TURNS))
    costs = [row.cost for row in report.turns]
    assert len(costs) == KEPT_TURNS
    assert costs == sorted(costs, reverse=True)
    assert costs[0] == max(1000 + n - n % 900 for n in range(3 * KEPT_TURNS))
    assert report_of([Evicted(3.0), Evicted(5.0, 4)]).evictions == 5
