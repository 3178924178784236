"""Choosing the next token from a model's logits, and log-probabilities.

The order is: penalties, logit_bias, the constraint's mask, temperature, top_k, top_p, min_p, draw.
Each cut keeps at least one token. Nothing here walks the vocabulary more often than it must: with
top_k the candidates are found first, and all later work is on those few.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from headstart.engines.base import Logits
from headstart.errors import EngineError
from headstart.prefix.tokens import TokenRun
from headstart.serving.request import Sampling, TokenLogprob

Mask = npt.NDArray[np.bool_]
Ids = npt.NDArray[np.intp]
Weights = npt.NDArray[np.float32]

_STRIDE = 64
_ROW = 512
_SEED_BITS = (1 << 64) - 1


class Sampler:
    """Chooses one request's tokens.

    Holds its random generator (PCG64) and the token counts of the penalties, so what it chooses
    depends on `sampling`, the prompt and the logits, never on other requests.
    """

    def __init__(self, sampling: Sampling, vocab_size: int, prompt: TokenRun) -> None:
        self._sampling = sampling
        self._vocab_size = vocab_size
        self._counts: dict[int, int] = {}
        repeats = sampling.repetition_penalty != 1.0
        self._prompt_ids: Ids = np.unique(prompt).astype(np.intp) if repeats else np.empty(0, dtype=np.intp)
        bias = sorted(sampling.logit_bias.items())
        self._bias_ids: Ids = np.array([token for token, _ in bias], dtype=np.intp)
        self._bias = np.array([value for _, value in bias], dtype=np.float32)
        self._counting = repeats or sampling.presence_penalty != 0.0 or sampling.frequency_penalty != 0.0
        self._greedy = sampling.temperature <= 0.0 or sampling.top_k == 1
        seed = None if sampling.seed is None else sampling.seed & _SEED_BITS
        self._random = None if self._greedy else np.random.Generator(np.random.PCG64(seed))

    @property
    def takes_highest(self) -> bool:
        """Whether, without a constraint, the token with the model's own highest score is chosen."""
        return self._random is None and not self._counting and not len(self._bias_ids)

    def choose(self, logits: Logits, allowed: Mask | None) -> int:
        """The next token. `allowed` is a constraint's mask, shape (vocab_size,), or None.

        Raises EngineError where the logits hold NaN or infinity, or no token is left.
        """
        scores = logits
        if self._counting or len(self._bias_ids):
            scores = self._penalized(logits)
        if allowed is not None:
            scores = np.where(allowed, scores, np.float32(-np.inf))
        if self._random is None:
            return _greedy(scores)
        return self._draw(scores)

    def accept(self, token: int) -> None:
        """Tells the sampler that `token` was generated."""
        if self._counting:
            self._counts[token] = self._counts.get(token, 0) + 1

    def _penalized(self, logits: Logits) -> Logits:
        """Logits after penalties and bias, in new memory.

        repetition_penalty divides positive and multiplies negative scores of tokens of the prompt
        and the reply (Keskar et al. 2019, CTRL; Hugging Face's RepetitionPenaltyLogitsProcessor).
        presence_penalty and frequency_penalty are OpenAI's: over tokens of the reply only.
        """
        scores = logits.copy()
        generated: Ids = np.fromiter(self._counts.keys(), dtype=np.intp, count=len(self._counts))
        penalty = self._sampling.repetition_penalty
        if penalty != 1.0:
            seen = np.union1d(self._prompt_ids, generated)
            values = scores[seen]
            scores[seen] = np.where(values > 0, values / penalty, values * penalty)
        if len(generated):
            counts = np.fromiter(self._counts.values(), dtype=np.float32, count=len(self._counts))
            fixed = np.float32(self._sampling.presence_penalty)
            scores[generated] -= counts * np.float32(self._sampling.frequency_penalty) + fixed
        scores[self._bias_ids] += self._bias
        return scores

    def _draw(self, scores: Logits) -> int:
        sampling = self._sampling
        assert self._random is not None
        point = self._random.random()
        peak = _peak(scores)
        ids: Ids | None = None
        if 0 < sampling.top_k < len(scores):
            ids = np.sort(top_ids(scores, sampling.top_k))
            scores = scores[ids]
        weights = _weights(scores, peak, sampling.temperature)
        if sampling.top_p < 1.0:
            kept = _nucleus(weights, sampling.top_p)
            ids, weights = _narrowed(ids, kept), weights[kept]
        if sampling.min_p > 0.0:
            kept = np.flatnonzero(weights >= sampling.min_p * weights.max())
            ids, weights = _narrowed(ids, kept), weights[kept]
        place = _pick(weights, point)
        return place if ids is None else int(ids[place])


def top_ids(scores: Logits, count: int) -> Ids:
    """The `count` tokens with the highest scores, highest first, ties in order of token id.

    One token in each of `count` different strides is enough to know a score that at least `count`
    tokens reach; so only the few above it are sorted.
    """
    whole = len(scores) // _STRIDE * _STRIDE
    strides = whole // _STRIDE
    if count < strides:
        peaks = scores[:whole].reshape(_STRIDE, strides).max(axis=0)
        floor = np.partition(peaks, strides - count)[strides - count]
        candidates = np.flatnonzero(scores >= floor)
    else:
        candidates = np.arange(len(scores))
    order = np.argsort(-scores[candidates], kind="stable")
    return candidates[order[:count]]


def logprobs(logits: Logits, token: int, top: int) -> tuple[float, tuple[TokenLogprob, ...]]:
    """Natural log of the probability of `token`, and of the `top` likeliest tokens, highest first.

    Of the model's own distribution: before penalties, bias, mask, temperature and cuts.
    Raises EngineError where the logits hold NaN or infinity.
    """
    peak = _peak(logits)
    total = peak + math.log(float(np.exp(logits - peak).sum(dtype=np.float64)))
    ids = top_ids(logits, min(top, len(logits))) if top else ()
    likeliest = tuple(TokenLogprob(int(i), float(logits[i]) - total) for i in ids)
    return float(logits[token]) - total, likeliest


def _greedy(scores: Logits) -> int:
    """The highest score, the lowest token id among equals. argmax finds a NaN first if there is one."""
    token = int(scores.argmax())
    if not math.isfinite(scores[token]):
        _peak(scores)
    return token


def _peak(scores: Logits) -> float:
    """The highest score; EngineError where none can be drawn from."""
    peak = float(scores.max())
    if math.isnan(peak):
        raise EngineError(
            "the model's logits hold NaN: its weights or the state it resumed from are damaged. "
            "Try again with cache_prompt false; if it stays, check the model file"
        )
    if peak == -math.inf:
        raise EngineError("no token may follow: the constraint or logit_bias excludes every one")
    if peak == math.inf:
        raise EngineError("the model's logits hold infinity: its numbers overflowed; try another KV type")
    return peak


def _weights(scores: Logits, peak: float, temperature: float) -> Weights:
    """Unnormalized probabilities, the highest 1; safe for any temperature above 0."""
    weights: Weights = scores - np.float32(peak)
    with np.errstate(over="ignore"):
        weights *= np.float32(min(1.0 / temperature, 1e30))
    return np.exp(weights, out=weights)


def _narrowed(ids: Ids | None, kept: Ids) -> Ids:
    return kept if ids is None else ids[kept]


def _nucleus(weights: Weights, top_p: float) -> Ids:
    """The fewest tokens that hold `top_p` of the probability, in order of id; at least one.

    Among equals the lower ids are kept. Only weights above a floor are sorted, and the floor sinks
    until what lies above it is enough.
    """
    target = top_p * float(weights.sum(dtype=np.float64))
    for floor in (1e-3, 1e-5, 0.0):
        heavy = weights[weights >= floor] if floor else weights
        sums = np.cumsum(np.sort(heavy)[::-1], dtype=np.float64)
        if sums[-1] >= target or not floor:
            break
    count = min(int(np.searchsorted(sums, target, side="left")) + 1, len(heavy))
    cutoff = np.partition(heavy, len(heavy) - count)[len(heavy) - count]
    return _highest(weights, cutoff, count)


def _highest(values: npt.NDArray[np.float32], cutoff: np.float32, count: int) -> Ids:
    """The `count` places with the highest values, ascending; `cutoff` is the lowest of them."""
    kept = np.flatnonzero(values >= cutoff)
    surplus = len(kept) - count
    if surplus > 0:
        ties = np.flatnonzero(values[kept] == cutoff)
        kept = np.delete(kept, ties[-surplus:])
    return kept


def _pick(weights: Weights, point: float) -> int:
    """The place at `point` (0..1) of the distribution laid out in order of token id.

    That order does not change when two scores that are nearly equal change places, so numerical
    noise moves few choices. Long runs are summed by row first, then one row is walked.
    """
    rows = len(weights) // _ROW
    body = weights[: rows * _ROW].reshape(rows, _ROW).sum(axis=1, dtype=np.float64)
    sums = np.cumsum(np.append(body, weights[rows * _ROW :].sum(dtype=np.float64)))
    wanted = point * sums[-1]
    row = min(int(np.searchsorted(sums, wanted, side="right")), rows)
    inside = np.cumsum(weights[row * _ROW : (row + 1) * _ROW], dtype=np.float64)
    before = sums[row - 1] if row else 0.0
    place = int(np.searchsorted(inside, wanted - before, side="right"))
    if place < len(inside):
        return row * _ROW + place
    return int(np.flatnonzero(weights[: (row + 1) * _ROW])[-1])
