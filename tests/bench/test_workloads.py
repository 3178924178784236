"""The benchmark's workloads and its perfect cache."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workloads import WORKLOADS, PerfectCache, Source, Step, Tokens, common_prefix, longest, play

TEXT = [(i * i * 31 + 7 * i) % 997 for i in range(4000)]
REPLY = [5, 5, 5]


def steps(name: str, size: int = 256, salt: int = 1) -> list[Step]:
    return list(play(WORKLOADS[name](Source(TEXT, salt), size), lambda _: list(REPLY)))


def reads(name: str, size: int = 256) -> tuple[int, int]:
    """Tokens sent, and tokens a perfect cache reads, over a whole workload."""
    cache, sent, read = PerfectCache(), 0, 0
    for step in steps(name, size):
        sent += len(step.prompt)
        read += cache.must_read(step.prompt)
        cache.remember(step.prompt, REPLY)
    return sent, read


@given(
    st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=12), max_size=6),
    st.lists(st.integers(0, 2), min_size=1),
)
def test_a_perfect_cache_reads_what_no_earlier_run_begins_with(history: list[Tokens], prompt: Tokens) -> None:
    cache = PerfectCache()
    for run in history:
        cache.remember(run, [])
    known = max(
        (n for n in range(len(prompt)) if any(run[:n] == prompt[:n] for run in history if len(run) >= n)),
        default=0,
    )
    assert cache.must_read(prompt) == len(prompt) - known


def test_the_last_reply_token_has_no_row() -> None:
    cache = PerfectCache()
    cache.remember([1, 2], [3, 4])
    assert cache.must_read([1, 2, 3, 4, 9]) == 2


def test_exact_repeat_and_append_read_everything_once() -> None:
    sent, read = reads("exact repeat")
    assert (sent, read) == (3 * 256, 256 + 2)
    _, read = reads("ten-turn append")
    assert read == 128 + 10 * 16 + 9 * 1  # the head, ten messages, and the last token of nine replies


def test_an_edit_reads_from_the_edit_on() -> None:
    _, read = reads("edit sweep", 1000)
    assert read == 1000 + sum(1000 - 1000 * p // 100 for p in (10, 25, 50, 75, 90))


def test_four_conversations_read_the_head_once() -> None:
    _, read = reads("four conversations")
    assert read == 128 + 4 * 64 + 8 * (16 + 1)


def test_coming_back_to_a_branch_reads_only_what_is_new() -> None:
    _, read = reads("branch and back")
    assert read == 192 + 64 + 64 + 2 * (16 + 1)


@pytest.mark.parametrize("name", WORKLOADS)
def test_cold_steps_share_nothing_with_what_came_before(name: str) -> None:
    before: list[Tokens] = []
    for step in steps(name):
        if step.cold:
            assert all(common_prefix(step.prompt, other) == 0 for other in before)
        before.append(step.prompt)
    assert steps(name)[0].cold


def test_workloads_share_no_prefix() -> None:
    firsts = [steps(name, salt=salt)[0].prompt for salt, name in enumerate(WORKLOADS)]
    assert all(common_prefix(a, b) < 4 for i, a in enumerate(firsts) for b in firsts[:i])


def test_longest_counts_the_reply() -> None:
    assert longest([WORKLOADS["exact repeat"](Source(TEXT, 1), 100)], REPLY) == 103
