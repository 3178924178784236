"""What OpenAI's two completion formats have in common, with what local servers add to them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from headstart.accept.exchange import Ask, Score

DONE = "[DONE]"


def headers(api_key: str | None) -> dict[str, str]:
    return {"Authorization": f"Bearer {api_key}"} if api_key else {}


def common_body(ask: Ask, model: str | None) -> dict[str, Any]:
    """The fields both formats share; options come later."""
    body: dict[str, Any] = {
        "max_tokens": ask.max_tokens,
        "temperature": ask.temperature,
        "stream": ask.stream,
    }
    name = ask.model or model
    if name is not None:
        body["model"] = name
    if ask.seed is not None:
        body["seed"] = ask.seed
    if ask.stop:
        body["stop"] = list(ask.stop)
    if ask.stream:
        body["stream_options"] = {"include_usage": True}
    return body


def parse(payload: str | bytes) -> dict[str, Any]:
    """A JSON object. Raises ValueError."""
    data = json.loads(payload)
    if not isinstance(data, dict):
        raise ValueError(f"expected a JSON object, found {str(data)[:60]!r}")
    return data


def error_of(data: Mapping[str, Any]) -> str | None:
    """The server's words, where the object is an error."""
    error = data.get("error")
    if error is None or error is False:
        return None
    if isinstance(error, Mapping):
        return str(error.get("message") or dict(error))
    return str(error)


def numbers(data: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of a Piece from `usage` and llama-server's `timings`."""
    usage = mapping(data.get("usage"))
    timings = mapping(data.get("timings"))
    details = mapping(usage.get("prompt_tokens_details"))
    prompt = whole(usage.get("prompt_tokens"))
    if prompt is None and "prompt_n" in timings and "cache_n" in timings:
        prompt = (whole(timings["prompt_n"]) or 0) + (whole(timings["cache_n"]) or 0)
    reused = whole(details.get("cached_tokens"))
    found: dict[str, Any] = {
        "prompt_tokens": prompt,
        "completion_tokens": whole(usage.get("completion_tokens")),
        "reused": whole(timings.get("cache_n")) if reused is None else reused,
        "server_prompt_s": seconds(usage.get("prompt_eval_duration"), timings.get("prompt_ms")),
        "server_decode_s": seconds(usage.get("generation_duration"), timings.get("predicted_ms")),
        "drafted": whole(timings.get("draft_n")),
        "accepted": whole(timings.get("draft_n_accepted")),
        "warnings": warnings(data),
    }
    raw = {key: dict(part) for key, part in (("usage", usage), ("timings", timings)) if part}
    return found | {"usage": raw}


def warnings(data: Mapping[str, Any]) -> tuple[str, ...]:
    """What the reply names as ignored (headstart)."""
    named = mapping(data.get("headstart")).get("warnings")
    return tuple(str(one) for one in named) if isinstance(named, list) else ()


def mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def whole(value: Any) -> int | None:
    return int(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def seconds(value_s: Any, value_ms: Any = None) -> float | None:
    if isinstance(value_s, int | float) and not isinstance(value_s, bool):
        return float(value_s)
    return float(value_ms) / 1000 if isinstance(value_ms, int | float) else None


def choice(data: Mapping[str, Any]) -> Mapping[str, Any]:
    choices = data.get("choices")
    return mapping(choices[0]) if isinstance(choices, list) and choices else {}


def content_scores(logprobs: Any) -> tuple[Score, ...]:
    """Scores as the chat format has them: `content`, a list of tokens with `top_logprobs`."""
    content = mapping(logprobs).get("content")
    if not isinstance(content, list):
        return ()
    found = []
    for entry in content:
        value = mapping(entry).get("logprob")
        if not isinstance(value, int | float):
            continue
        top = {
            _spelling(other): float(other["logprob"])
            for other in entry.get("top_logprobs") or ()
            if isinstance(mapping(other).get("logprob"), int | float)
        }
        found.append(Score(_spelling(entry), float(value), top))
    return tuple(found)


def _spelling(entry: Mapping[str, Any]) -> str:
    return str(entry.get("token", entry.get("id", "")))
