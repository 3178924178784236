"""Which requests get in, and which of those in the queue should wait for another's work."""

from __future__ import annotations

from collections.abc import Iterable

from headstart.errors import Overloaded, RequestError
from headstart.prefix.tokens import common_prefix
from headstart.serving.request import GenerationRequest
from headstart.serving.sequence import Running

MIN_SHARED_TOKENS = 16
"""Waiting for another prefill must save at least this many tokens of reading."""


def check_prompt(request: GenerationRequest, context_tokens: int, vocab_size: int) -> None:
    """Raises RequestError where the prompt cannot be served by this model at all."""
    n = len(request.prompt)
    if n == 0:
        raise RequestError(
            "the prompt is empty; send at least one token", param="prompt", code="empty_prompt"
        )
    if n >= context_tokens:
        raise RequestError(
            f"the prompt has {n} tokens and this server's context holds {context_tokens}, reply included; "
            f"shorten the prompt to at most {context_tokens - 1} tokens or start the server with a larger "
            "--ctx-size",
            param="prompt",
            code="context_length_exceeded",
        )
    low, high = int(request.prompt.min()), int(request.prompt.max())
    if low < 0 or high >= vocab_size:
        raise RequestError(
            f"token id {low if low < 0 else high} is not in this model's vocabulary (0 to {vocab_size - 1})",
            param="prompt",
            code="invalid_token",
        )


def retry_after_s(busy_s: float, ended: int) -> int:
    """A whole number of seconds after which a place is likely to be free: what a request has taken so
    far, of `ended` ones in `busy_s`."""
    return max(1, min(60, round(busy_s / max(1, ended))))


def check_queue(waiting: int, queue_limit: int, retry_after_s: int) -> None:
    """Raises Overloaded when the queue is full."""
    if waiting >= queue_limit:
        raise Overloaded(
            f"{waiting} requests are waiting already, the most this server queues (--queue-limit); "
            f"try again in {retry_after_s} s",
            retry_after_s=retry_after_s,
        )


def shared_unread(run: Running, restorable: int, running: Iterable[Running]) -> tuple[Running, int] | None:
    """A prefill now under way that will read tokens `run` needs too, and up to which position.

    `restorable` is where `run` could start now. Two requests that share an unread prefix read it
    once: the later one waits for the earlier at the position where they part (design section 5).
    """
    best: tuple[Running, int] | None = None
    for other in running:
        if other.recorder is None or not other.recorder.active or other.namespace != run.namespace:
            continue
        if other.decoding or other.finished:
            continue
        shared = common_prefix(run.tokens, other.tokens)
        ahead = shared - max(restorable, other.position)
        if ahead >= MIN_SHARED_TOKENS and (best is None or shared > best[1]):
            best = other, shared
    return best
