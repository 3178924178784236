"""Pure decisions: is it the same answer, was it warm, how far back does the server restore.

Nothing here sends, waits or reads a clock.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from statistics import median
from typing import Final

from headstart.accept.exchange import Exchange, Score
from headstart.accept.fixtures import QuestionKind, Tier

TOLERANCE = 1.0
"""Natural log units. Reading the same tokens in other pieces moves a quantized model's scores by up to
about 0.8 on processors; a wrong state moves them by several."""
FAR = 30.0
"""Stands for a difference where two replies have no alternative in common."""
WARM_SHARE, COLD_SHARE = 0.4, 0.6
SMALL: Final = Tier("2k", 2048)
SMALL_READING_S = 1.0
"""A prompt that takes this long to read is long enough for the clock."""


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
    problems: tuple[str, ...] = ()
    """Requests of the calibration that came to nothing, in words."""


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
    differences: list[float] = []
    for one, other in zip(a, b, strict=False):
        left = {**one.top, one.token: one.logprob}
        right = {**other.top, other.token: other.logprob}
        common = left.keys() & right.keys()
        differences += [abs(left[token] - right[token]) for token in common if _finite(left, right, token)]
        if not common:
            differences.append(FAR)
        if one.token != other.token:
            break
    return max(differences) if differences else None


def _finite(left: Mapping[str, float], right: Mapping[str, float], token: str) -> bool:
    return math.isfinite(left[token]) and math.isfinite(right[token])


def floor_of(first: Exchange, second: Exchange) -> Floor:
    """The floor from two runs that are both cold."""
    return Floor(score_difference(first.scores, second.scores), first.text == second.text)


def same(
    cold: Exchange,
    warm: Exchange,
    floor: Floor,
    facts_right: bool | None = None,
    tolerance: float = TOLERANCE,
) -> Sameness:
    """Whether `warm` is the answer that `cold` is: by scores, else by text, else by facts.

    `facts_right`: what the planted facts say about `warm`; a wrong fact is DIFFERENT where `cold` did
    not get it wrong in the same words, UNDECIDED where the replies part at a near tie. `tolerance`:
    difference of a log-probability that reading in other pieces may make; three times the floor where
    that is more.
    """
    most = max(tolerance, 3 * (floor.score or 0.0))
    plain = _plainly(cold, warm, facts_right, most)
    if plain is not None:
        return plain
    difference = score_difference(cold.scores, warm.scores)
    if difference is not None:
        answer = Answer.SAME if difference <= most else Answer.DIFFERENT
        words = f"log-probabilities differ by {difference:.3g} (up to {most:.3g} is noise)"
        return Sameness(answer, "scores", words, difference)
    if warm.text == cold.text:
        return Sameness(Answer.SAME, "text", "the same text")
    if facts_right:
        return Sameness(Answer.SAME, "facts", "other words, right facts")
    words = f"{_quoted(warm)} where the cold answer is {_quoted(cold)}"
    return Sameness(Answer.DIFFERENT if floor.text else Answer.UNDECIDED, "text", words)


def _plainly(cold: Exchange, warm: Exchange, facts_right: bool | None, most: float) -> Sameness | None:
    """What comes before the measure: a failure, an empty reply, a wrong fact."""
    if cold.failure or warm.failure:
        return Sameness(Answer.UNDECIDED, "text", "one of the two requests failed")
    if not warm.text and cold.text:
        return Sameness(Answer.DIFFERENT, "text", "the reply is empty where the cold one is not")
    if facts_right is False and warm.text != cold.text:
        wrong = f"the answer {_quoted(warm)} is wrong"
        difference = score_difference(cold.scores, warm.scores)
        if difference is not None and difference <= most and near_tie(cold.scores, warm.scores, most):
            words = (
                f"{wrong}, but where it parts from the cold one both words were about as likely in either run"
            )
            return Sameness(Answer.UNDECIDED, "scores", f"{words} ({difference:.3g} apart)", difference)
        return Sameness(Answer.DIFFERENT, "facts", wrong)
    return None


def near_tie(a: Sequence[Score], b: Sequence[Score], most: float) -> bool:
    """Whether two replies part at a token where each run held that of the other for nearly as likely as its
    own, so that rounding decides. A wrong state moves scores by several; a reply broken off parts nowhere."""
    for one, other in zip(a, b, strict=False):
        if one.token == other.token:
            continue
        there, here = one.top.get(other.token), other.top.get(one.token)
        if there is None or here is None:
            return False
        return one.logprob - there <= most and other.logprob - here <= most
    return False


def _quoted(exchange: Exchange, most: int = 40) -> str:
    text = exchange.answer
    return repr(text if len(text) <= most else text[: most - 3] + "...")


def warmth(waited_s: float, prompt_tokens: int, calibration: Calibration) -> Warmth:
    """Whether a first token after `waited_s` can have come from reading the whole prompt."""
    reading_s = calibration.read_s_per_token * prompt_tokens
    quick_s = min(calibration.warm_s, calibration.base_s + reading_s / 10)
    room_s = calibration.base_s + reading_s - quick_s
    if room_s < 3 * _noise_s(calibration):
        return Warmth.UNCLEAR
    share = (waited_s - quick_s) / room_s
    if share <= WARM_SHARE:
        return Warmth.WARM
    return Warmth.COLD if share >= COLD_SHARE else Warmth.UNCLEAR


def small_size(smallest: Tier, calibration: Calibration, allowance: int) -> Tier:
    """The size for gates that show the same on any length: SMALL, where that is less than the `smallest`
    tier, takes long enough to read for the clock to tell, and is several gaps of `allowance` tokens."""
    reading_s = SMALL.least * calibration.read_s_per_token
    tells = reading_s >= max(SMALL_READING_S, 4 * _noise_s(calibration)) and 4 * allowance <= SMALL.tokens
    return SMALL if SMALL.tokens < smallest.tokens and tells else smallest


def _noise_s(calibration: Calibration) -> float:
    """How far apart two times of the same may lie on this machine."""
    return max([0.02, *(t.spread_s for t in (calibration.cold, calibration.warm) if t.samples)])


def read_by_clock(waited_s: float, calibration: Calibration) -> float:
    """How many prompt tokens the waiting time is enough to read; 0 at least."""
    if calibration.read_s_per_token <= 0:
        return 0.0
    return max(0.0, (waited_s - calibration.base_s) / calibration.read_s_per_token)


def granularity(points: Sequence[tuple[Reach, int]]) -> Step:
    """The smallest step that explains (divergence, restored) pairs. Raises ValueError for none."""
    if not points:
        raise ValueError("a granularity needs at least one point")
    for minus in (0, 1, 2):
        grid = math.gcd(*(restored + minus for _, restored in points if restored > 0), 0)
        for step in _divisors(grid):
            if all(_explains(step, minus, reach, restored) for reach, restored in points):
                return Step(step, minus)
    widest = max(max(0, reach.low - restored) for reach, restored in points)
    return Step(max(1, widest), 0, irregular=True)


def _divisors(number: int) -> list[int]:
    small = [n for n in range(1, math.isqrt(number) + 1) if number % n == 0]
    return sorted({*small, *(number // n for n in small)})


def _explains(step: int, minus: int, reach: Reach, restored: int) -> bool:
    low, high = (max(0, (d + minus) // step * step - minus) for d in (reach.low, reach.high))
    return low <= restored <= high
