"""Step c of the diff: the same text, but other tokens than were generated.

A reply is made token by token, and its text need not encode into the same tokens again ("Han" + "zi" where
the tokenizer writes "H" + "anzi"). The next prompt, encoded from text, then parts from what the server has
inside that reply, though nobody changed a letter. A server that resumes at exact tokens shows where.
"""

from __future__ import annotations

from headstart.blame.causes import retokenised as cause
from headstart.blame.exchange import Exchange
from headstart.blame.finding import Culprit, Finding, Step
from headstart.blame.prompt import Prompt
from headstart.blame.rendering import Reader, common_tokens, rendered, with_reply

__all__ = ["retokenised"]


def retokenised(
    reader: Reader, before: Exchange, after: Exchange, first: Prompt, second: Prompt
) -> Finding | None:
    """The finding where the server reused more than the prompt of `before`, but not all of its reply, though
    the texts agree. None where that cannot be told: no tokenizer, no counts, other texts."""
    cached, prompted, generated = after.usage.cached, before.usage.prompt, before.usage.completion
    if cached is None or prompted is None or not generated:
        return None
    said, _ = rendered(reader, with_reply(first, before.reply), to_generate=False)
    text, _ = rendered(reader, second)
    if said is None or text is None or not text.startswith(said.rstrip()):
        return None
    then, now = reader.tokens(said.rstrip()), reader.tokens(text)
    if then is None or now is None:
        return None
    alike = common_tokens(then, now)
    if not prompted <= cached < min(alike, prompted + generated) - 1:
        return None
    words = (
        "the reply came back to the letter, but its text encodes into other tokens than were generated: "
        f"the server has {cached:,} tokens in common with it, the text {alike:,}"
    )
    return Finding(
        cause.CODE,
        Culprit.TOKENIZER,
        Step.TOKENS,
        words,
        token=cached,
        tokens_behind=len(now) - cached,
        fix=cause.FIX,
    )
