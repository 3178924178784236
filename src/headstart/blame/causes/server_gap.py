"""The server went back further than it had to."""

from __future__ import annotations

from dataclasses import replace

from headstart.blame.causes.context import SMALL_SHARE, SMALL_TOKENS, Context, server_finding
from headstart.blame.causes.history import granularity
from headstart.blame.finding import Change, Finding, Fix

CODE = "SERVER_GAP"
PLAIN = (
    "Client and prompt are as they were, but the server had no restore point where they part from the "
    "turn before and went back to an earlier one: models with a sliding window or a recurrent state can "
    "only resume at saved points, and some servers at whole blocks."
)
FIX = Fix(
    "Have the server keep restore points closer together, or one at the end of every prompt. headstart "
    "resumes at the token itself."
)
LLAMA = Fix(
    "Have llama-server keep more restore points, closer together (their number times their spacing should "
    "cover the context); with a sliding window, keep the whole window's state by --swa-full.",
    "--checkpoint-min-step 4096 --ctx-checkpoints 16",
)


def detect(change: Change | None, context: Context) -> Finding | None:
    lost = context.shortfall
    if lost is None or not context.server_lost:
        return None
    cached, had = context.exchange.usage.cached, context.before.usage.prompt
    return _short(
        f"{cached:,} of {had:,} tokens were reused, {lost:,} short of where the prompts part", context
    )


def short_of(token: int, context: Context) -> Finding | None:
    """The finding where prompts part at `token`, and the server resumed well before it."""
    cached = context.exchange.usage.cached
    if cached is None or token - cached <= max(SMALL_TOKENS, SMALL_SHARE * token):
        return None
    said = f"the prompts part at token {token:,}, and the server resumed at {cached:,}"
    return replace(_short(said, context), token=token, tokens_lost=token - cached)


def _short(said: str, context: Context) -> Finding:
    if step := granularity(context.conversation):
        less = ", less one" if step[1] else ""
        said += f"; it resumes at multiples of {step[0]:,} tokens{less}"
    return server_finding(CODE, context, said, LLAMA if context.served_by("llama") else FIX)
