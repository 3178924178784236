"""The tally of differing replies, and the prompts they are asked for."""

from __future__ import annotations

from dataclasses import replace

from same_bits import Tally, variants
from servers import Reply
from workloads import Source, common_prefix

REPLY = Reply(10, 3, 2, 0.1, 0.2, 0.1, 0.1, text="ab", logprobs=(-1.0, -2.0), facts={"tier": "ram"})


def test_equal_replies_count_as_equal() -> None:
    tally = Tally()
    tally.add(REPLY, REPLY)
    assert (tally.pairs, tally.texts_differ, tally.logprobs_differ, tally.largest_logprob_gap) == (1, 0, 0, 0)
    assert (tally.prompt_tokens, tally.read_tokens, tally.tiers) == (10, 3, {"ram": 1})


def test_the_last_bit_of_a_logprob_is_a_difference() -> None:
    tally = Tally()
    tally.add(REPLY, replace(REPLY, logprobs=(-1.0, -2.0000000000000004)))
    assert (tally.texts_differ, tally.logprobs_differ) == (0, 1)
    assert 0 < tally.largest_logprob_gap < 1e-15


def test_another_text_is_a_difference_and_only_the_first_tokens_are_compared() -> None:
    tally = Tally()
    tally.add(REPLY, replace(REPLY, text="ax", logprobs=(-1.5, -9.0)))
    assert (tally.texts_differ, tally.largest_logprob_gap) == (1, 0.5)


def test_half_of_the_prompts_are_appended_to_and_half_edited() -> None:
    text = [(i * i * 31 + 7 * i) % 997 for i in range(4000)]
    found = variants(Source(text, 1), 20)
    appended = [one for one in found if one.changed[: len(one.base)] == one.base]
    assert len(appended) == 10
    for one in found:
        if one not in appended:
            assert len(one.changed) == len(one.base)
            assert 0 < common_prefix(one.base, one.changed) < len(one.base)
