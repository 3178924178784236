"""`headstart serve` with replies that are given: the real engine, cache, scheduler and APIs.

    python bench/scripted_server.py RULES.json --model embedded --port 9000 ...

A small model cannot play a coding agent's part, so its replies are put into its mouth, token by token: it
reads them as if it had chosen them, so that state, history and reports are those of a real conversation.
RULES.json is a list of {"when": TEXT, "say": REPLY}: the rule whose `when` occurs last in a prompt gives the
reply, as the model itself would write it, calls of tools included. Without a rule the model speaks itself.
What follows RULES.json are flags of `headstart serve`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from headstart.cli import main as headstart
from headstart.cli import server
from headstart.engines.base import Engine
from headstart.serving.constraint import Constraint, ConstraintCompiler
from headstart.serving.request import ConstraintKind, ConstraintSpec, GenerationRequest
from headstart.serving.scheduler import Scheduler, Ticket

MARK = "scripted reply: "
"""Begins the source of a constraint that stands for a given reply."""


@dataclass(frozen=True)
class Rule:
    """`say` answers a prompt in which `when` is what occurs last of all rules'."""

    when: str
    say: str


def reply_to(prompt: str, rules: Sequence[Rule]) -> str | None:
    """What to say; None where no rule's `when` occurs. Of two at one place the longer one counts."""
    places = [(prompt.rfind(rule.when) + len(rule.when), len(rule.when), rule) for rule in rules]
    found = [place for place in places if place[2].when in prompt]
    return max(found, key=lambda place: place[:2])[2].say if found else None


class GivenReply(Constraint):
    """Allows one token after the other and then the end."""

    def __init__(self, tokens: Sequence[int], vocab_size: int, ends: Sequence[int]) -> None:
        super().__init__(None, vocab_size, ends)
        self._tokens = [*tokens, ends[0]]
        self._at = 0

    def mask(self) -> npt.NDArray[np.bool_]:
        allowed = np.zeros(self._vocab_size, dtype=np.bool_)
        allowed[self._tokens[self._at]] = True
        return allowed

    def accept(self, token: int) -> None:
        assert token == self._tokens[self._at]
        self._at += 1


class ScriptedCompiler(ConstraintCompiler):
    """Knows the constraints that stand for given replies besides the others."""

    def __init__(self, engine: Engine) -> None:
        super().__init__(
            engine.vocabulary,
            engine.layout.vocab_size,
            lambda text: engine.tokenize(text, special=False, add_bos=False).tolist(),
        )
        self._engine = engine

    def compile(self, spec: ConstraintSpec) -> Constraint:
        if not spec.source.startswith(MARK):
            return super().compile(spec)
        said = spec.source.removeprefix(MARK)
        tokens = self._engine.tokenize(said, special=True, add_bos=False).tolist()
        return GivenReply(tokens, self._engine.layout.vocab_size, self._ends)


def scripted(rules: Sequence[Rule]) -> type[Scheduler]:
    """A scheduler whose requests are answered by `rules`."""

    class ScriptedScheduler(Scheduler):
        def __init__(self, engine: Engine, settings: Any, compiler: Any, *others: Any) -> None:
            super().__init__(engine, settings, ScriptedCompiler(engine), *others)

        def submit(self, request: GenerationRequest, sink: Callable[[Any], None]) -> Ticket:
            pieces = self._engine.vocabulary.pieces
            prompt = b"".join(pieces[token] for token in request.prompt.tolist()).decode("utf-8", "replace")
            said = reply_to(prompt, rules)
            if said is not None:
                given = ConstraintSpec(ConstraintKind.GRAMMAR, MARK + said)
                request = replace(request, constraint=given)
            return super().submit(request, sink)

    return ScriptedScheduler


def main(arguments: Sequence[str]) -> int:
    if not arguments or arguments[0] in ("-h", "--help"):
        print(__doc__)
        return 0 if arguments else 2
    rules = [Rule(one["when"], one["say"]) for one in json.loads(Path(arguments[0]).read_text("utf-8"))]
    server.Scheduler = scripted(rules)  # type: ignore[misc]
    return headstart(["serve", *arguments[1:]])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
