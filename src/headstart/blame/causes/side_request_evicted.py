"""Another request took the place of the conversation in the cache."""

from __future__ import annotations

from headstart.blame.causes.context import Context, server_finding
from headstart.blame.causes.history import calm, lost_most, pairs
from headstart.blame.finding import Change, Finding, Fix

CODE = "SIDE_REQUEST_EVICTED"
PLAIN = (
    "Between two turns the server had another request (a title, a summary, another conversation), and "
    "after it the conversation's cache was gone."
)
FIX = Fix(
    "Switch such calls off or send them to another model (opencode: small_model), or give the server room "
    "for more than one conversation: in llama-server more slots (-np) and --cache-ram."
)
CLAUDE = Fix(
    "Switch such calls off in Claude Code (CLAUDE_CODE_DISABLE_TERMINAL_TITLE=1 is for titles alone), or "
    "give the server room for more than one conversation: in llama-server more slots (-np) and "
    "--cache-ram.",
    "DISABLE_NON_ESSENTIAL_MODEL_CALLS=1",
)


def detect(change: Change | None, context: Context) -> Finding | None:
    if not context.between or not lost_most(context.before, context.exchange) or not context.server_lost:
        return None
    quiet = [pair for pair in pairs(context.conversation) if calm(pair)]
    if quiet and all(lost_most(*pair) for pair in quiet):
        return None
    numbers = ", ".join(str(exchange.number) for exchange in context.between[:3])
    more = f" and {len(context.between) - 3} more" if len(context.between) > 3 else ""
    what = "request" if len(context.between) == 1 else "requests"
    cached, had = context.exchange.usage.cached, context.before.usage.prompt
    said = f"{cached:,} of {had:,} tokens were left after {what} {numbers}{more} in between"
    return server_finding(CODE, context, said, CLAUDE if context.from_claude else FIX)
