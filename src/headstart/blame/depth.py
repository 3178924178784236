"""The steps below the bodies, for turns of a recording: what a verdict asks of the rendered prompts.

A template given by hand need not be the server's own. Where the server counts other tokens than the template
gives, nothing is said of rendered prompts: a place in another prompt is no place.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

from headstart.blame.causes.context import Context
from headstart.blame.exchange import Exchange
from headstart.blame.finding import Finding, Step
from headstart.blame.prompt import Prompt
from headstart.blame.rendered import Parting, deeper, parting, placed
from headstart.blame.rendering import Reader, rendered, with_reply
from headstart.blame.retokenised import retokenised
from headstart.errors import HeadstartError

__all__ = ["Depth"]

T = TypeVar("T")


class Depth:
    """Looks at turns as the model of `reader` reads them. `problems`: why that could not be done, and for how
    many turns."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self.problems: Counter[str] = Counter()

    def inspect(self, context: Context) -> Finding | None:
        """What template and tokenizer do to bodies that only go on."""
        before, after = context.before_prompt, context.prompt

        def look() -> Finding | None:
            found = deeper(self._reader, context.before, before, after)
            return found or retokenised(self._reader, context.before, context.exchange, before, after)

        return self._looked(context, look)

    def same(self, context: Context) -> bool:
        """Whether the later prompt begins with all of the earlier one, although the bodies differ."""

        def look() -> bool:
            then = self._text(context.before_prompt, to_generate=False)
            now = self._text(context.prompt)
            return then is not None and now is not None and now.startswith(then)

        return bool(self._looked(context, look))

    def place(self, context: Context, finding: Finding) -> Finding:
        """`finding` with its place in the rendered prompt; as it is where that is not known."""
        place = self._looked(context, lambda: self._parting(context, finding.step))
        if place is None:
            return finding
        left, right = finding.before or place.left, finding.after or place.right
        return replace(placed(finding, place), before=left, after=right)

    def _looked(self, context: Context, look: Callable[[], T]) -> T | None:
        """What `look` sees; None where the template is not the server's, or cannot be asked."""
        try:
            return look() if self._fits(context) else None
        except HeadstartError as error:
            self.problems[str(error)] += 1
            return None

    def _parting(self, context: Context, step: Step) -> Parting | None:
        before = context.before_prompt
        if step is Step.GENERATED:
            before = with_reply(before, context.before.reply)
        then = self._text(before, to_generate=False)
        now = self._text(context.prompt)
        if then is None or now is None:
            return None
        return parting(self._reader, then.rstrip() if step is Step.GENERATED else then, now)

    def _text(self, prompt: Prompt, *, to_generate: bool = True) -> str | None:
        text, problem = rendered(self._reader, prompt, to_generate=to_generate)
        if text is None:
            self.problems[problem] += 1
        return text

    def _fits(self, context: Context) -> bool:
        """Whether the template renders both turns, and is the server's own as far as its counts tell."""
        pairs = ((context.before, context.before_prompt), (context.exchange, context.prompt))
        return all(self._counts_alike(exchange, prompt) for exchange, prompt in pairs)

    def _counts_alike(self, exchange: Exchange, prompt: Prompt) -> bool:
        text = self._text(prompt)
        if text is None:
            return False
        counted = exchange.usage.prompt
        tokens = None if counted is None else self._reader.tokens(text)
        if tokens is None or len(tokens) == counted:
            return True
        self.problems[
            "the server counts other tokens than the given template and tokenizer make of the request: they "
            "are not the server's own, and its rendered prompts are not compared"
        ] += 1
        return False
