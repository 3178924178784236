"""Whether an option did what it says, from the replies. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from headstart.accept.exchange import Exchange
from headstart.accept.gates.evidence import restored

SLACK_S = 90.0


@dataclass(frozen=True)
class Effect:
    """`seen`: True: it did what it says; False: it did not; None: that cannot be told. `detail`: one
    clause."""

    seen: bool | None
    detail: str


def limit(short: Exchange, plain: Exchange, tokens: int) -> Effect:
    """max_tokens: `short` was to have `tokens` at most, `plain` more."""
    wrote, longer = _wrote(short), _wrote(plain)
    if wrote is not None:
        if wrote > tokens:
            return Effect(False, f"{wrote} tokens came where {tokens} were the limit")
        if longer is not None and longer <= tokens:
            return Effect(None, f"the reply ends by itself after {longer} tokens")
        return Effect(True, f"{wrote} tokens at a limit of {tokens}")
    if not plain.text:
        return Effect(None, "the plain reply is empty")
    if len(short.text) >= len(plain.text):
        return Effect(False, f"a limit of {tokens} tokens makes the reply no shorter")
    return Effect(
        True, f"{len(short.text)} characters at a limit of {tokens} tokens, {len(plain.text)} without"
    )


def _wrote(exchange: Exchange) -> int | None:
    if exchange.completion_tokens is not None:
        return exchange.completion_tokens
    return len(exchange.scores) or None


def stop_text(text: str) -> str | None:
    """A piece of a reply to stop at: the first word past its first third that is found nowhere before.
    None for a reply too short."""
    words = [match for match in re.finditer(r"\w{2,}", text) if text.find(match[0]) == match.start()]
    later = [match[0] for match in words if match.start() >= len(text) // 3]
    if later:
        return later[0]
    middle = text[len(text) // 2 :].split()
    return middle[0][:8] if middle and text.find(middle[0][:8]) > 0 else None


def stopped(reply: Exchange, plain: Exchange, stop: str) -> Effect:
    """stop: `reply` was to end before `stop`, which `plain` holds."""
    if stop in reply.text:
        return Effect(False, f"the reply goes on past {stop!r}")
    if plain.text.startswith(reply.text.rstrip()) and len(reply.text) < len(plain.text):
        return Effect(True, f"the reply ends before {stop!r}")
    return Effect(None, f"the reply is another than without it, and has no {stop!r}")


def seeded(one: Sequence[Exchange], other: Sequence[Exchange], third: Exchange) -> Effect:
    """seed: two pairs of replies with one seed each, and one with a third seed, at a high temperature."""
    equal = [pair[0].text == pair[1].text for pair in (one, other)]
    texts = {exchange.text for exchange in (*one, *other, third)}
    if not any(equal):
        return Effect(
            False, f"two replies with seed {one[0].ask.seed} differ, and so do two with {other[0].ask.seed}"
        )
    if len(texts) == 1:
        return Effect(None, "replies with three seeds are all alike, so it cannot be seen at work")
    if not all(equal):
        return Effect(None, "two replies with one seed agree, two with another do not")
    if one[0].text == other[0].text == third.text:
        return Effect(None, "replies with other seeds are alike, so it cannot be seen at work")
    return Effect(True, "replies with one seed are equal, with another they differ")


def scored(streamed: Exchange, whole: Exchange | None = None) -> Effect:
    """logprobs: the reply was to have log-probabilities. `whole`: the same in one piece, where the stream
    had none."""
    if streamed.scores:
        return Effect(True, f"{len(streamed.scores)} tokens came with theirs")
    if not streamed.text and not streamed.reasoning:
        return Effect(None, "the reply is empty")
    if whole is not None and whole.scores:
        return Effect(False, "no log-probability came in a stream, though they come in one piece")
    return Effect(False, "no log-probability came")


def uncached(off: Exchange, warm: Exchange) -> Effect:
    """The cache was to be left alone by `off`; `warm` is the same prompt with it."""
    had, has = restored(warm), restored(off)
    if has is None or had is None:
        return Effect(None, "the server does not say what it reused")
    if had == 0:
        return Effect(None, "the same prompt reuses nothing with the cache either")
    if has:
        return Effect(False, f"{has:,} tokens were reused with the cache switched off, {had:,} with it on")
    return Effect(True, f"0 tokens reused with the cache switched off, {had:,} with it on")


def context(running: object, model: str | None, wanted: int) -> Effect:
    """num_ctx, by what /api/ps then lists."""
    found = _entry(running, model).get("context_length")
    if not isinstance(found, int):
        return Effect(None, "/api/ps does not state the context the model runs with")
    if found == wanted:
        return Effect(True, f"the model runs with a context of {found:,}")
    return Effect(False, f"the model runs with a context of {found:,} where {wanted:,} was asked for")


def kept(running: object, model: str | None, until_s: float) -> Effect:
    """keep_alive, by what /api/ps then lists. `until_s`: Unix time to which the model was to be kept."""
    found = _entry(running, model).get("expires_at")
    try:
        ends_s = datetime.fromisoformat(str(found)).timestamp()
    except (ValueError, OverflowError):
        return Effect(None, "/api/ps does not state how long the model is kept")
    if abs(ends_s - until_s) <= SLACK_S:
        return Effect(True, "/api/ps lists the model as kept for that long")
    return Effect(False, f"/api/ps lists it as kept for {ends_s - until_s:+.0f} s more than was asked for")


def _entry(running: object, model: str | None) -> Mapping[str, Any]:
    listed = [one for one in running if isinstance(one, Mapping)] if isinstance(running, list) else []
    named = [one for one in listed if model in (one.get("name"), one.get("model"))]
    found = named or (listed if len(listed) == 1 else [])
    return found[0] if found else {}
