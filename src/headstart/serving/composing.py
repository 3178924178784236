"""What the engine reads in one step: a token and a draft for every decoding sequence, and prefill."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from headstart.engines.base import Step
from headstart.serving.chunking import chunk_end, next_prefill
from headstart.serving.sequence import Running
from headstart.serving.speculation import Draft


@dataclass(frozen=True)
class Share:
    """One sequence's part of a step: `chunk` tokens of its own, then those of `draft`. `greedy`: see Step."""

    run: Running
    chunk: int
    draft: Draft | None
    greedy: bool = False

    @property
    def step(self) -> Step:
        run = self.run
        assert run.seq is not None
        tokens = run.tokens[run.position : run.position + self.chunk]
        if self.draft is None:
            return Step(run.seq, tokens, wants_logits=self.chunk == run.unread, greedy=self.greedy)
        tokens = np.concatenate([tokens, self.draft.tokens])
        return Step(run.seq, tokens, wants_logits=len(tokens))


class Composer:
    """Composes steps: prefill chunks up to `chunk_tokens` together, on the grid where there is one.
    `most`: how many tokens the engine takes in a step now. `drafts`: replies are speculated on, so that what
    comes next is no single token."""

    def __init__(
        self, chunk_tokens: int, grid_tokens: int, most: Callable[[], int], *, drafts: bool = False
    ) -> None:
        self._chunk_tokens = chunk_tokens
        self._most = most
        self._grid = grid_tokens
        self._drafts = drafts
        self._turn = 0

    def compose(self, running: list[Running], propose: Callable[[Running], Draft | None]) -> list[Share]:
        """Every decoding sequence's token with what `propose` adds to it, and prefill chunks."""
        decoding = [run for run in running if run.decoding]
        shares = [Share(run, 1, propose(run), not self._drafts and run.greedy) for run in decoding]
        budget = self._chunk_tokens if self._grid else min(self._chunk_tokens, self._most())
        reading = [run for run in running if not run.decoding]
        while reading and budget > 0:
            run = reading.pop(next_prefill([r.prefill() for r in reading], self._turn))
            self._turn += 1
            end = chunk_end(run.prefill(), budget, self._grid)
            shares.append(Share(run, end - run.position, None))
            budget -= end - run.position
            if self._grid:
                break
        return shares
