"""`headstart serve` with replies that are given: the real engine, scheduler, cache, history and APIs.

    python -m headstart.lab.scripted --rules RULES.json [--tokens TOKENS.jsonl] --model embedded ...

A small model cannot play a coding agent's part, so its replies are put into its mouth token by token. It
reads them as if it had chosen them: state, cache, history and reports are those of a real conversation.

RULES.json is a list of {"when": TEXT, "say": REPLY}. The rule whose `when` ends last in a prompt gives the
reply, as the model itself would write it: calls of tools in its own form, without the end of the turn, which
is added. In every template what a turn adds stands behind all that was said before, so a text that came with
one turn only picks that turn's reply, in any dialect. Where no rule's text occurs the model speaks itself.
TOKENS.jsonl, where it is given, gets a line a request: the tokens of its prompt and those of its given reply,
the one that ends it included. All other flags are those of `headstart serve`.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from headstart.cli import serve
from headstart.cli.flags import given_flags
from headstart.cli.server import serve as serve_with
from headstart.cli.terminal import Terminal
from headstart.config import OPTIONS, resolve
from headstart.engines.base import Engine
from headstart.errors import ConfigError, HeadstartError
from headstart.prefix.tokens import TokenRun
from headstart.serving.constraint import Constraint
from headstart.serving.request import GenerationRequest
from headstart.serving.scheduler import Scheduler

Record = Callable[[list[int], list[int]], None]
"""Is told the tokens of a prompt and of its given reply, none where the model speaks itself."""


@dataclass(frozen=True)
class Rule:
    """`say` answers a prompt in which, of all rules', `when` ends last."""

    when: str
    say: str


def reply_to(prompt: str, rules: Sequence[Rule]) -> str | None:
    """What to say; None where no rule's `when` occurs. Of two that end at one place the longer counts."""
    found = [(prompt.rfind(rule.when) + len(rule.when), rule) for rule in rules if rule.when in prompt]
    return max(found, key=lambda place: (place[0], len(place[1].when)))[1].say if found else None


def read_rules(path: Path) -> list[Rule]:
    """The rules in a file. Raises ConfigError where it holds something else."""
    try:
        given = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as problem:
        raise ConfigError(f"--rules {path}: cannot be read as JSON: {problem}") from None
    if not isinstance(given, list):
        raise ConfigError(f'--rules {path}: expected a list of {{"when": TEXT, "say": REPLY}}')
    return [_rule(path, number, one) for number, one in enumerate(given)]


def _rule(path: Path, number: int, given: object) -> Rule:
    if isinstance(given, dict) and given.keys() == {"when", "say"}:
        when, say = given["when"], given["say"]
        if isinstance(when, str) and isinstance(say, str) and when:
            return Rule(when, say)
    raise ConfigError(
        f'--rules {path}: entry {number} is not {{"when": TEXT, "say": REPLY}} with a text to look for'
    )


class GivenReply(Constraint):
    """Allows one of `tokens` after the other, the last of which ends the reply."""

    def __init__(self, tokens: Sequence[int], vocab_size: int) -> None:
        super().__init__(None, vocab_size, [tokens[-1]])
        self._left = [*reversed(tokens)]

    def mask(self) -> npt.NDArray[np.bool_]:
        """The next token of the reply alone."""
        allowed = np.zeros(self._vocab_size, dtype=np.bool_)
        allowed[self._left[-1]] = True
        return allowed

    def accept(self, token: int) -> None:
        """The reply goes on with `token`, which is the one that was allowed."""
        assert token == self._left[-1], f"{token} was chosen where {self._left[-1]} alone was allowed"
        self._left.pop()
        self.done = not self._left


def end_of_turn(engine: Engine) -> int:
    """The token that ends a reply: the one its own template ends turns with, else the end of text.

    Raises ConfigError where the model names none.
    """
    vocabulary, template = engine.vocabulary, engine.facts.chat_template or ""
    ends = sorted(vocabulary.end_of_generation)
    written = [token for token in ends if vocabulary.pieces[token].decode("utf-8", "replace") in template]
    for token in (*written, vocabulary.eos, *ends):
        if token in ends:
            return token
    raise ConfigError("this model names no end-of-generation token, so a given reply could not end")


def scripted(rules: Sequence[Rule], record: Record = lambda prompt, reply: None) -> type[Scheduler]:
    """A scheduler whose replies `rules` give; `record` is told of each request."""

    class ScriptedScheduler(Scheduler):
        def _constraint(self, request: GenerationRequest) -> Constraint | None:
            said = reply_to(self._text(request.prompt), rules)
            if said is None:
                record(request.prompt.tolist(), [])
                return super()._constraint(request)
            reply = self._engine.tokenize(said, special=True, add_bos=False).tolist()
            reply.append(end_of_turn(self._engine))
            record(request.prompt.tolist(), reply)
            return GivenReply(reply, self._engine.layout.vocab_size)

        def _text(self, prompt: TokenRun) -> str:
            pieces = self._engine.vocabulary.pieces
            return b"".join([pieces[token] for token in prompt.tolist()]).decode("utf-8", "replace")

    return ScriptedScheduler


@contextmanager
def recording(path: Path | None) -> Iterator[Record]:
    """Writes what it is told to a file, a line a request; forgets it without one. Raises ConfigError."""
    if path is None:
        yield lambda prompt, reply: None
        return
    try:
        file = path.open("w", encoding="utf-8")
    except OSError as problem:
        raise ConfigError(f"--tokens {path}: cannot be written: {problem}") from None
    with file:
        yield lambda prompt, reply: print(
            json.dumps({"prompt": prompt, "reply": reply}), file=file, flush=True
        )


def main(arguments: Sequence[str]) -> int:
    """Serves until SIGINT or SIGTERM; answers with the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m headstart.lab.scripted",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--rules", type=Path, metavar="FILE", required=True, help="the replies, as JSON")
    parser.add_argument("--tokens", type=Path, metavar="FILE", help="gets the tokens of each request")
    serve.add_arguments(parser)
    given = parser.parse_args(arguments)
    try:
        rules = read_rules(given.rules)
        settings = resolve(given_flags(given, OPTIONS), os.environ, given.config)
        serve.configure_logging(settings)
        with recording(given.tokens) as record:
            return serve_with(settings, Terminal(), scripted(rules, record))
    except HeadstartError as error:
        print(f"headstart: {error}", file=sys.stderr)
        return 2 if isinstance(error, ConfigError) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
