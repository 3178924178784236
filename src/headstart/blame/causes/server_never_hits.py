"""The server reuses nothing, ever."""

from __future__ import annotations

from headstart.blame.causes.context import Context, server_finding
from headstart.blame.causes.history import calm, pairs
from headstart.blame.finding import Change, Finding, Fix

CODE = "SERVER_NEVER_HITS"
PLAIN = (
    "The client only adds to the conversation, and the server still reuses nothing in any turn: its "
    "prefix cache is off, does not work for this kind of model (sliding window, hybrid), or is not told "
    "of in its counts."
)
FIX = Fix(
    "See that prompt caching is on. llama-server: cache_prompt true, --cache-ram not 0, and --swa-full "
    "for models with a sliding window. vLLM: --enable-prompt-tokens-details, without which it does not "
    "count hits, and a block size below the prompt's length."
)
_LEAST_TURNS = 2
_LEAST_TOKENS = 256


def detect(change: Change | None, context: Context) -> Finding | None:
    told = [
        pair
        for pair in pairs(context.conversation)
        if pair[1].usage.cached is not None and (pair[0].usage.prompt or 0) >= _LEAST_TOKENS
    ]
    if len(told) < _LEAST_TURNS or any(pair[1].usage.cached for pair in told):
        return None
    if not any(calm(pair) for pair in told) or not context.server_lost:
        return None
    said = f"none of {context.before.usage.prompt:,} tokens were reused, nor were any in {len(told)} turns"
    return server_finding(CODE, context, said, FIX)
