"""What a request cost, counted once and put into each API's own fields."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from headstart.serving.models import ServedModel
from headstart.serving.request import Finished


@dataclass(frozen=True)
class Accounting:
    """The numbers of one API request, over all its replies.

    A prompt asked for several replies counts once; `cached_tokens` is then what was there before
    the request: the least any of its replies restored. Times in seconds; `first_token_s` runs from
    the last byte of the request to the first text, `total_s` to the end of the reply.
    `prefill_s` is summed over prompts read, `decode_s` is the longest of the replies.
    """

    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int
    replies: int
    first_token_s: float
    total_s: float
    prefill_s: float
    decode_s: float
    load_s: float = 0.0
    drafted: int = 0
    accepted: int = 0

    @property
    def read_tokens(self) -> int:
        """Prompt tokens the model had to read."""
        return self.prompt_tokens - self.cached_tokens

    @property
    def read_per_s(self) -> float:
        return _rate(self.read_tokens, self.prefill_s)

    @property
    def decoded_per_s(self) -> float:
        """Tokens a second after the first of each reply, which the prefill gives."""
        return _rate(self.completion_tokens - self.replies, self.decode_s)


def account(
    ends: Sequence[Finished],
    replies_a_prompt: int,
    *,
    first_token_s: float,
    total_s: float,
    load_s: float = 0.0,
) -> Accounting:
    """The accounting of replies that follow each other prompt by prompt."""
    groups = [ends[at : at + replies_a_prompt] for at in range(0, len(ends), replies_a_prompt)]
    return Accounting(
        prompt_tokens=sum(group[0].report.prompt_tokens for group in groups),
        cached_tokens=sum(min(end.report.restored for end in group) for group in groups),
        completion_tokens=sum(end.completion_tokens for end in ends),
        replies=len(ends),
        first_token_s=first_token_s,
        total_s=total_s,
        prefill_s=sum(end.timings.prefill_s for end in ends),
        decode_s=max((end.timings.decode_s for end in ends), default=0.0),
        load_s=load_s,
        drafted=sum(end.drafted for end in ends),
        accepted=sum(end.accepted for end in ends),
    )


def thought_tokens(model: ServedModel, tokens: Sequence[int], thoughts: Sequence[str]) -> int:
    """How many tokens of a reply spell its thoughts, given as texts in the order of the reply. Marks around
    thoughts are none of them. A thought that is not in the reply to the byte counts as it would encode."""
    pieces = [model.vocabulary.pieces[token] for token in tokens]
    spelled, ends = b"".join(pieces), list(accumulate(map(len, pieces)))
    count, at = 0, 0
    for thought in filter(None, thoughts):
        said = thought.encode("utf-8", "surrogatepass")
        start = spelled.find(said, at)
        if start < 0:
            count += len(model.tokenize(thought, special=False, add_bos=False))
            continue
        at = start + len(said)
        count += bisect_left(ends, at) - bisect_right(ends, start) + 1
    return min(count, len(tokens))


def openai_usage(cost: Accounting) -> dict[str, Any]:
    """OpenAI's `usage`, with timings in seconds beside the counts."""
    return {
        "prompt_tokens": cost.prompt_tokens,
        "completion_tokens": cost.completion_tokens,
        "total_tokens": cost.prompt_tokens + cost.completion_tokens,
        "prompt_tokens_details": {"cached_tokens": cost.cached_tokens},
        "time_to_first_token": cost.first_token_s,
        "total_time": cost.total_s,
        "prompt_eval_duration": cost.prefill_s,
        "generation_duration": cost.decode_s,
        "model_load_duration": cost.load_s,
        "prompt_tokens_per_second": cost.read_per_s,
        "generation_tokens_per_second": cost.decoded_per_s,
    }


def llama_timings(cost: Accounting) -> dict[str, Any]:
    """`timings` as llama.cpp's server gives it; milliseconds. Drafts only where there were any."""
    drafts = {"draft_n": cost.drafted, "draft_n_accepted": cost.accepted} if cost.drafted else {}
    return {
        "cache_n": cost.cached_tokens,
        "prompt_n": cost.read_tokens,
        "prompt_ms": cost.prefill_s * 1e3,
        "prompt_per_token_ms": _rate(cost.prefill_s * 1e3, cost.read_tokens),
        "prompt_per_second": cost.read_per_s,
        "predicted_n": cost.completion_tokens,
        "predicted_ms": cost.decode_s * 1e3,
        "predicted_per_token_ms": _rate(cost.decode_s * 1e3, cost.completion_tokens - cost.replies),
        "predicted_per_second": cost.decoded_per_s,
        **drafts,
    }


def _rate(amount: float, per: float) -> float:
    """`amount / per`; 0 where there is nothing to divide, or a clock too coarse to have seen it."""
    rate = amount / per if amount > 0 and per > 0 else 0.0
    return rate if math.isfinite(rate) else 0.0
