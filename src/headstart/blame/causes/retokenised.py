"""Generated text that is cut into other tokens when it is read."""

from __future__ import annotations

from headstart.blame.causes.context import Context
from headstart.blame.finding import Change, Finding, Fix

CODE = "RETOKENISED"
PLAIN = (
    "The text is the same, but the tokenizer cuts it otherwise than the model generated it: two tokens "
    "for one, or line ends joined. The cache holds the tokens that were generated, so reading goes on "
    "from there."
)
FIX = Fix(
    "Use a server that builds the next prompt from the tokens it generated, or one that keeps a restore "
    "point at the end of the prompt, so that only the reply is read again."
)


def detect(change: Change | None, context: Context) -> Finding | None:
    """None: this is seen in tokens only."""
    return None
