"""Speculation: tokens that are guessed, read in one step with the last one, and kept where they are
what the model chooses anyway.

The target's own sampler goes through the scores token by token, so the reply is the one that would have
come without drafts; a guess only saves a step. What was read of a wrong guess is taken back before anything
is stored. What is drafted depends on the request's own tokens only, never on other requests.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from headstart.engines.base import Engine, Logits
from headstart.errors import ConfigError, EngineError
from headstart.prefix.tokens import TokenRun
from headstart.serving.anchor import Anchor
from headstart.serving.draft_model import ModelDrafter, check_vocabulary
from headstart.serving.draft_ngram import NgramDrafter
from headstart.serving.sequence import Running


class Speculate(StrEnum):
    """Where drafts come from."""

    OFF = "off"
    NGRAM = "ngram"
    DRAFT = "draft"


class Drafter(Protocol):
    """Guesses for one request."""

    def propose(self, tokens: TokenRun, most: int) -> TokenRun:
        """Up to `most` tokens that may follow `tokens`; may be empty."""
        ...

    def close(self) -> None:
        """Frees what it holds."""
        ...


@dataclass(frozen=True)
class Draft:
    """Guessed tokens, at least one, and the way back from them."""

    tokens: TokenRun
    anchor: Anchor


FIRST_DRAFT = 2


def next_length(drafted: int, accepted: int, most: int) -> int:
    """How long the draft after one of `drafted` tokens is: twice it where all of it was right, else one
    more than was right. A wrong guess costs a token's computing; on a processor nearly as much as a step."""
    return min(most, 2 * drafted if accepted == drafted else accepted + 1)


@dataclass
class _Drafting:
    """One request's drafter, and how many tokens it may guess next."""

    drafter: Drafter
    length: int = FIRST_DRAFT


class Speculation:
    """Drafts of all requests of one scheduler. Engine thread only.

    Raises ConfigError where the engine cannot check drafts of `most` tokens.
    """

    def __init__(self, engine: Engine, make: Callable[[], Drafter] | None, most: int) -> None:
        if make is not None and engine.facts.step_scores <= most:
            raise ConfigError(
                f"--draft-tokens {most} needs the scores of {most + 1} tokens of a step; engine "
                f"{engine.facts.engine} gives {engine.facts.step_scores}: use fewer, or --speculate off"
            )
        self._engine = engine
        self._make = make
        self._most = min(most, engine.max_step_tokens - 1)
        if engine.layout.window_tokens:
            self._most = min(self._most, engine.layout.window_tokens // 2 - 1)
        self._drafting: dict[Running, _Drafting] = {}
        self.drafted_tokens = 0
        self.accepted_tokens = 0

    def propose(self, run: Running) -> Draft | None:
        """What `run`, which is decoding, may read beyond its next token; None for nothing."""
        most = min(self._most, run.max_new_tokens - run.generated - 1)
        if self._make is None or most < 1 or run.stops or run.seq is None:
            return None
        drafting = self._drafting.get(run)
        if drafting is None:
            drafting = self._drafting[run] = _Drafting(self._make())
        tokens = drafting.drafter.propose(run.tokens, min(most, drafting.length))
        if not len(tokens):
            return None
        try:
            return Draft(tokens, Anchor.take(self._engine, run.seq))
        except EngineError:
            return None

    def verify(
        self, run: Running, draft: Draft, scores: Logits, sample: Callable[[Running, Logits], None]
    ) -> None:
        """`run` has read its next token and `draft`, and `scores` are those after each of them: samples
        as far as the guesses are right. The engine still stands after the whole draft."""
        before = run.accepted
        run.drafted += len(draft.tokens)
        self.drafted_tokens += len(draft.tokens)
        sample(run, scores[0])
        for token, following in zip(draft.tokens.tolist(), scores[1:], strict=True):
            if run.finished or run.tokens[-1] != token:
                break
            run.accepted += 1
            self.accepted_tokens += 1
            run.advance(run.position + 1)
            sample(run, following)
        self._drafting[run].length = next_length(len(draft.tokens), run.accepted - before, self._most)

    def settle(self, run: Running, draft: Draft) -> None:
        """Takes the engine back to where `run` stands. Raises EngineError."""
        assert run.seq is not None
        draft.anchor.back(self._engine, run.seq, run.position, run.tokens)

    def keep_only(self, running: Iterable[Running]) -> None:
        """Frees the drafters of requests that no longer run."""
        if self._drafting:
            for run in self._drafting.keys() - set(running):
                self._drafting.pop(run).drafter.close()


def new_speculation(engine: Engine, kind: Speculate, most: int, draft_engine: Engine | None) -> Speculation:
    """Speculation as set. Raises ConfigError where the draft model does not fit the engine."""
    if kind is Speculate.NGRAM:
        return Speculation(engine, NgramDrafter, most)
    if kind is Speculate.DRAFT:
        if draft_engine is None:
            raise ConfigError("--speculate draft needs --draft-model")
        drafts = draft_engine
        check_vocabulary(engine, drafts)
        return Speculation(engine, lambda: ModelDrafter(drafts, engine.layout.vocab_size), most)
    return Speculation(engine, None, most)
