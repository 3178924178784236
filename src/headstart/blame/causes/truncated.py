"""The server cut the prompt and did not say so."""

from __future__ import annotations

from headstart.blame.causes.context import SMALL_TOKENS, Context, server_finding
from headstart.blame.finding import Change, Finding, Fix
from headstart.blame.prompt import Kind, Prompt

CODE = "TRUNCATED"
PLAIN = (
    "The conversation grew, and yet the server counts fewer prompt tokens: it cut the front or the middle "
    "out to fit its context. The model no longer sees that part, and as the front moves, nothing can be "
    "reused."
)
FIX = Fix(
    "Give the server a context that holds the conversation; an agent's first request alone takes about "
    "33,000 tokens."
)
OLLAMA = Fix(
    "Give Ollama a context that holds the conversation: by this variable, `PARAMETER num_ctx` in a "
    "Modelfile or `options.num_ctx`; an agent's first request alone takes about 33,000 tokens.",
    "OLLAMA_CONTEXT_LENGTH=65536",
)
_GREW_CHARS = 100
# An old server that counts only what it read tells less than this share.
_PARTIAL = 0.5
# Fewer characters a token than any text has.
_DENSE = 2.0


def detect(change: Change | None, context: Context) -> Finding | None:
    had, now = context.before.usage.prompt, context.exchange.usage.prompt
    if not had or not now or change is not None:
        return None
    grew = context.prompt.chars - context.before_prompt.chars
    if grew < 0 or now > had or (had - now <= SMALL_TOKENS and grew < _GREW_CHARS):
        return None
    if context.exchange.usage.cached is None and _partial(context, had, now):
        return None
    thinking = sum(len(piece.text) for piece in context.before_prompt.pieces if piece.kind is Kind.THINKING)
    if thinking and had - now <= thinking / _DENSE:
        return None
    said = f"the prompt grew by {grew:,} characters, its tokens went from {had:,} to {now:,}"
    return server_finding(
        CODE, context, said + half(context.prompt, now), OLLAMA if context.served_by("ollama") else FIX
    )


def _partial(context: Context, had: int, now: int) -> bool:
    """Whether these may be counts of read tokens alone, as old servers give them."""
    most = max(exchange.usage.prompt or 0 for exchange in (context.before, *context.conversation))
    return now < _PARTIAL * had or had < most


def half(prompt: Prompt, now: int) -> str:
    """Says so where `now` tokens are what Ollama leaves of a prompt that is too long; else ""."""
    size = prompt.options.get("num_ctx")
    if isinstance(size, int) and size // 2 <= now <= size // 2 + 8:
        return f", half of num_ctx {size:,}"
    return ""
