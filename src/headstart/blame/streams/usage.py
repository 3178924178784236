"""Token counts and the server's own times, as each dialect and server words them.

A field that is absent or null stays unknown; it is never taken for 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headstart.blame.exchange import Usage

NS_PER_S = 1e9
MS_PER_S = 1e3
_ABSURD = 1e15
"""No count of tokens, and no time in nanoseconds (eleven days), that a server means."""


def count(value: Any) -> int | None:
    """A count of tokens, None where `value` is none."""
    number = seconds(value, 1)
    return None if number is None else int(number)


def seconds(value: Any, per: float) -> float | None:
    """`value` of which `per` make a second, in seconds; None where it is no number."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < _ABSURD:
        return None
    return float(value) / per


def fields(value: Any) -> Mapping[str, Any]:
    """`value` where it is a JSON object, else an empty one."""
    return value if isinstance(value, dict) else {}


def openai(usage: Mapping[str, Any]) -> Usage:
    """`usage` of chat, completions and responses."""
    details = fields(usage.get("prompt_tokens_details")) or fields(usage.get("input_tokens_details"))
    return Usage(
        prompt=_first(count(usage.get("prompt_tokens")), count(usage.get("input_tokens"))),
        cached=count(details.get("cached_tokens")),
        completion=_first(count(usage.get("completion_tokens")), count(usage.get("output_tokens"))),
    )


def anthropic(usage: Mapping[str, Any]) -> Usage:
    """Anthropic's counts: `input_tokens` are those that were neither read from nor written to a cache."""
    fresh = count(usage.get("input_tokens"))
    cached = count(usage.get("cache_read_input_tokens"))
    written = count(usage.get("cache_creation_input_tokens"))
    return Usage(
        prompt=None if fresh is None else fresh + (cached or 0) + (written or 0),
        cached=cached,
        completion=count(usage.get("output_tokens")),
    )


def ollama(payload: Mapping[str, Any]) -> Usage:
    """The last line's counts. `prompt_eval_count` includes cached tokens in builds that tell those apart."""
    return Usage(
        prompt=count(payload.get("prompt_eval_count")),
        cached=count(payload.get("prompt_eval_cached_count")),
        completion=count(payload.get("eval_count")),
    )


def llama_timings(timings: Mapping[str, Any]) -> Usage:
    """llama-server's `timings`: `prompt_n` are only the tokens that were computed."""
    cached, read = count(timings.get("cache_n")), count(timings.get("prompt_n"))
    return Usage(
        prompt=None if cached is None or read is None else cached + read,
        cached=cached,
        completion=count(timings.get("predicted_n")),
    )


def progress(payload: Mapping[str, Any]) -> Usage:
    """llama-server's `prompt_progress`, sent while the prompt is read."""
    return Usage(prompt=count(payload.get("total")), cached=count(payload.get("cache")))


def joined(first: Usage, second: Usage) -> Usage:
    """`first`, with what it does not tell taken from `second`."""
    return Usage(
        prompt=_first(first.prompt, second.prompt),
        cached=_first(first.cached, second.cached),
        completion=_first(first.completion, second.completion),
    )


def _first(first: int | None, second: int | None) -> int | None:
    return second if first is None else first
