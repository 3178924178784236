"""Pure decisions: is it the same answer, was it warm, how far back does the server restore.

Nothing here sends, waits or reads a clock.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from statistics import median

from headstart.accept.exchange import Exchange, Score
from headstart.accept.fixtures import QuestionKind


@dataclass(frozen=True)
class Reach:
    """How many leading tokens two prompts share: at least `low`, at most `high`. Equal where known."""

    low: int
    high: int

    @property
    def exact(self) -> bool:
        return self.low == self.high


@dataclass(frozen=True)
class Timing:
    """Samples of one duration, in seconds."""

    samples: tuple[float, ...]

    @property
    def median_s(self) -> float:
        return median(self.samples) if self.samples else math.nan

    @property
    def spread_s(self) -> float:
        """Largest minus smallest."""
        return max(self.samples) - min(self.samples) if self.samples else math.nan


@dataclass(frozen=True)
class Floor:
    """How far two cold runs of like prompts differ, which no warm run can be blamed for.

    `score`: largest difference of a log-probability among the tokens both name; None where the server
    gives none. `text`: whether the texts were equal.
    """

    score: float | None
    text: bool


@dataclass(frozen=True)
class Calibration:
    """What was measured before the first gate.

    `base_s` + `read_s_per_token` x tokens: time to the first token of a prompt read from nothing.
    `warm_s`: of an exact repeat of a short prompt. `decode_s_per_token`. `question`: what the model can
    answer cold; None: nothing. `first_text_reliable`: False where the wire gives no stream, so waiting
    is measured to the end of the reply.
    """

    base_s: float
    read_s_per_token: float
    warm_s: float
    decode_s_per_token: float
    chars_per_token: float
    overhead_tokens: int
    question: QuestionKind | None
    floor: Floor
    cold: Timing = Timing(())
    warm: Timing = Timing(())


class Answer(StrEnum):
    """SAME and DIFFERENT are shown; UNDECIDED: there was nothing to compare by."""

    SAME = "same"
    DIFFERENT = "different"
    UNDECIDED = "undecided"


@dataclass(frozen=True)
class Sameness:
    """`by`: "scores", "text" or "facts". `difference`: largest difference of a log-probability, where
    there are scores. `detail`: one clause for a verdict's reason."""

    answer: Answer
    by: str
    detail: str
    difference: float | None = None


class Warmth(StrEnum):
    """By the clock alone. UNCLEAR: reading the tokens takes too little time to tell."""

    WARM = "warm"
    COLD = "cold"
    UNCLEAR = "unclear"


@dataclass(frozen=True)
class Step:
    """Granularity of restores. The server restores to positions k x `step_tokens` - `minus`; 1 and 0:
    to any token. `irregular`: no such rule fits; `step_tokens` is then the largest gap seen."""

    step_tokens: int
    minus: int
    irregular: bool = False

    @property
    def words(self) -> str:
        """For a person: "restores to multiples of 8192, minus 1"."""
        if self.irregular:
            return f"restores to no regular grid; the largest gap was {self.step_tokens} tokens"
        if self.step_tokens == 1:
            return "restores to any token" + (f", minus {self.minus}" if self.minus else "")
        return f"restores to multiples of {self.step_tokens}" + (
            f", minus {self.minus}" if self.minus else ""
        )


def gap(divergence: Reach, reused: int | None) -> int | None:
    """Tokens a perfect cache would have restored and this one did not, the benefit of the doubt given:
    divergence.low - reused, 0 at least. None where the server does not say."""
    return None if reused is None else max(0, divergence.low - reused)


def beyond(divergence: Reach, reused: int | None) -> int | None:
    """Tokens claimed as restored past the divergence, where the prompts are no longer the same."""
    return None if reused is None else max(0, reused - divergence.high)


def score_difference(a: Sequence[Score], b: Sequence[Score]) -> float | None:
    """Largest difference of a log-probability over the tokens both replies agree on and the first they
    do not, alternatives included. None where nothing can be compared."""
    raise NotImplementedError


def floor_of(first: Exchange, second: Exchange) -> Floor:
    """The floor from two runs that are both cold."""
    raise NotImplementedError


def same(cold: Exchange, warm: Exchange, floor: Floor, facts_right: bool | None = None) -> Sameness:
    """Whether `warm` is the answer that `cold` is: by scores, else by text, else by facts.

    `facts_right`: what the planted facts say about `warm`; a wrong fact is DIFFERENT whatever the
    scores say.
    """
    raise NotImplementedError


def warmth(waited_s: float, prompt_tokens: int, calibration: Calibration) -> Warmth:
    """Whether a first token after `waited_s` can have come from reading the whole prompt."""
    raise NotImplementedError


def read_by_clock(waited_s: float, calibration: Calibration) -> float:
    """How many prompt tokens the waiting time is enough to read; 0 at least."""
    raise NotImplementedError


def granularity(points: Sequence[tuple[int, int]]) -> Step:
    """The step that explains (divergence, restored) pairs. Raises ValueError for none."""
    raise NotImplementedError
