"""One accounting, two dialects: their numbers agree."""

from __future__ import annotations

import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from headstart.api.usage import account, llama_timings, openai_usage
from headstart.prefix.report import CacheReport
from headstart.serving.request import Finished, FinishReason, Timings


def ended(
    prompt: int, restored: int, completion: int, prefill_s: float = 0.5, decode_s: float = 2.0
) -> Finished:
    report = CacheReport(prompt, restored, restored, 0, prompt - restored)
    timings = Timings(queued_s=0.1, prefill_s=prefill_s, decode_s=decode_s, first_token_s=0.6)
    return Finished(FinishReason.STOP, "", completion, report, timings)


def test_one_reply() -> None:
    cost = account([ended(100, 60, 11)], 1, first_token_s=0.7, total_s=3.0)
    usage, timings = openai_usage(cost), llama_timings(cost)
    assert usage["prompt_tokens"] == 100
    assert usage["completion_tokens"] == 11
    assert usage["total_tokens"] == 111
    assert usage["prompt_tokens_details"] == {"cached_tokens": 60}
    assert usage["time_to_first_token"] == 0.7
    assert usage["total_time"] == 3.0
    assert usage["prompt_tokens_per_second"] == pytest.approx(80)
    assert usage["generation_tokens_per_second"] == pytest.approx(5)
    assert (timings["cache_n"], timings["prompt_n"], timings["prompt_ms"]) == (60, 40, 500)
    assert (timings["predicted_n"], timings["predicted_ms"]) == (11, 2000)


def test_several_replies_count_their_prompt_once_and_what_was_there_before() -> None:
    ends = [ended(100, 0, 5), ended(100, 99, 7), ended(30, 10, 1), ended(30, 29, 1)]
    cost = account(ends, 2, first_token_s=1, total_s=2)
    assert (cost.prompt_tokens, cost.cached_tokens, cost.completion_tokens) == (130, 10, 14)


@example(replies=[(1, 0, 2, 0.0, 2.2250738585e-313)])
@given(
    st.lists(
        st.tuples(
            st.integers(1, 1000), st.integers(0, 1000), st.integers(0, 50), st.floats(0, 9), st.floats(0, 9)
        ),
        min_size=1,
        max_size=4,
    )
)
def test_numbers_add_up_and_are_json(replies: list[tuple[int, int, int, float, float]]) -> None:
    ends = [ended(p, min(p, r), c, prefill, decode) for p, r, c, prefill, decode in replies]
    cost = account(ends, 1, first_token_s=0.0, total_s=0.0)
    usage, timings = openai_usage(cost), llama_timings(cost)
    assert timings["cache_n"] + timings["prompt_n"] == usage["prompt_tokens"]
    assert usage["prompt_tokens_details"]["cached_tokens"] == timings["cache_n"]
    assert usage["completion_tokens"] == timings["predicted_n"]
    for values in (usage, timings):
        json.dumps(values, allow_nan=False)
        assert all(value >= 0 for value in values.values() if not isinstance(value, dict))
