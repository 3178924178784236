"""Every cut against a plain definition of it; the same seed, the same choice."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headstart.errors import EngineError
from headstart.serving.request import Sampling
from headstart.serving.sampling import Sampler, logprobs, top_ids

Floats = npt.NDArray[np.float32]
NO_PROMPT = np.empty(0, dtype=np.int32)


def random_logits(size: int, seed: int = 0, scale: float = 3.0) -> Floats:
    return np.random.default_rng(seed).normal(0, scale, size).astype(np.float32)


def draws(
    sampling: Sampling, logits: Floats, count: int, mask: npt.NDArray[np.bool_] | None = None
) -> list[int]:
    sampler = Sampler(sampling, len(logits), NO_PROMPT)
    return [sampler.choose(logits, mask) for _ in range(count)]


def plain_distribution(logits: Floats, sampling: Sampling) -> npt.NDArray[np.float64]:
    """The definition: sort everything, cut, renormalize."""
    scores = logits.astype(np.float64) / sampling.temperature
    order = np.argsort(-scores, kind="stable")
    if sampling.top_k:
        order = order[: sampling.top_k]
    weights = np.exp(scores[order] - scores[order[0]])
    sums = np.cumsum(weights) / weights.sum()
    if sampling.top_p < 1:
        order = order[: int(np.searchsorted(sums, sampling.top_p)) + 1]
    weights = np.exp(scores[order] - scores[order[0]])
    order, weights = order[weights >= sampling.min_p], weights[weights >= sampling.min_p]
    answer = np.zeros(len(logits))
    answer[order] = weights / weights.sum()
    return answer


@pytest.mark.parametrize(
    "sampling",
    [
        Sampling(),
        Sampling(temperature=0.7),
        Sampling(top_k=5),
        Sampling(top_p=0.6),
        Sampling(min_p=0.2),
        Sampling(temperature=1.5, top_k=20, top_p=0.9, min_p=0.05),
    ],
)
@pytest.mark.parametrize("size", [50, 3000])
def test_draws_follow_the_distribution(sampling: Sampling, size: int) -> None:
    logits = random_logits(size)
    expected = plain_distribution(logits, sampling)
    count = 4000
    seeded = Sampling(**{**sampling.__dict__, "seed": 7})
    got = np.bincount(draws(seeded, logits, count), minlength=size) / count
    assert not got[expected == 0].any()
    assert np.abs(got - expected).sum() < 6 * np.sqrt(expected * (1 - expected) / count).sum()


def test_greedy_is_the_highest_score_and_the_lowest_id_among_equals() -> None:
    logits = np.array([0, 3, 1, 3], dtype=np.float32)
    assert draws(Sampling(temperature=0), logits, 3) == [1, 1, 1]
    assert draws(Sampling(temperature=2, top_k=1), logits, 3) == [1, 1, 1]


def test_a_very_low_temperature_is_greedy() -> None:
    logits = random_logits(100)
    assert set(draws(Sampling(temperature=1e-9), logits, 20)) == {int(logits.argmax())}


def test_top_p_zero_keeps_one_token() -> None:
    logits = random_logits(3000)
    assert set(draws(Sampling(top_p=0.0), logits, 20)) == {int(logits.argmax())}


def test_same_seed_same_choices_whatever_runs_beside_it() -> None:
    logits = random_logits(5000)
    sampling = Sampling(temperature=0.9, top_p=0.95, seed=-3)
    alone = draws(sampling, logits, 30)
    one, other = (Sampler(s, 5000, NO_PROMPT) for s in (sampling, Sampling(seed=9)))
    together = []
    for _ in range(30):
        other.choose(logits, None)
        together.append(one.choose(logits, None))
    assert together == alone
    assert draws(Sampling(temperature=0.9, top_p=0.95, seed=4), logits, 30) != alone
    assert draws(Sampling(seed=None), logits, 30) != draws(Sampling(seed=None), logits, 30)


def test_two_nearly_equal_scores_changing_places_move_no_other_choice() -> None:
    logits = random_logits(1000)
    first, second = np.argsort(-logits)[3:5]
    logits[second] = np.nextafter(logits[first], np.float32(-np.inf))
    swapped = logits.copy()
    swapped[[first, second]] = swapped[[second, first]]
    sampling = Sampling(temperature=1.0, top_k=40, seed=1)
    assert draws(sampling, logits, 200) == draws(sampling, swapped, 200)


@settings(deadline=None)
@given(st.integers(1, 4000), st.integers(1, 300), st.integers(0, 3), st.booleans())
def test_top_ids_are_those_of_a_stable_sort(size: int, count: int, seed: int, ties: bool) -> None:
    scores = random_logits(size, seed)
    if ties:
        scores = np.round(scores)
    expected = np.argsort(-scores, kind="stable")[:count]
    assert top_ids(scores, min(count, size)).tolist() == expected.tolist()


@settings(deadline=None, max_examples=60)
@given(st.integers(2, 3000), st.floats(0, 1), st.integers(0, 5), st.booleans())
def test_nucleus_is_the_smallest_set_that_holds_top_p(size: int, top_p: float, seed: int, ties: bool) -> None:
    logits = random_logits(size, seed)
    if ties:
        logits = np.round(logits)
    expected = plain_distribution(logits, Sampling(top_p=top_p))
    seen = set(draws(Sampling(top_p=top_p, seed=seed), logits, 50))
    allowed = set(np.flatnonzero(expected).tolist())
    assert len(seen - allowed) <= 1  # one token may stand exactly at the edge, within rounding


def test_repetition_penalty_is_hugging_faces() -> None:
    logits = np.array([2.0, -2.0, 1.0, 0.5], dtype=np.float32)
    sampler = Sampler(Sampling(temperature=0, repetition_penalty=4.0), 4, np.array([0, 1, 1], dtype=np.int32))
    assert sampler._penalized(logits).tolist() == [0.5, -8.0, 1.0, 0.5]
    sampler.accept(2)
    assert sampler._penalized(logits).tolist() == [0.5, -8.0, 0.25, 0.5]
    assert logits.tolist() == [2.0, -2.0, 1.0, 0.5]


def test_presence_and_frequency_count_the_reply_only() -> None:
    logits = np.array([1.0, 1.0, 1.0], dtype=np.float32)
    sampling = Sampling(temperature=0, presence_penalty=0.5, frequency_penalty=0.25)
    sampler = Sampler(sampling, 3, np.array([0, 0], dtype=np.int32))
    sampler.accept(1)
    sampler.accept(1)
    sampler.accept(2)
    assert sampler._penalized(logits).tolist() == [1.0, 0.0, 0.25]
    assert sampler.choose(logits, None) == 0


def test_logit_bias_moves_and_bans() -> None:
    logits = np.array([1.0, 5.0, 0.0], dtype=np.float32)
    assert draws(Sampling(temperature=0, logit_bias={2: 100.0}), logits, 1) == [2]
    assert set(draws(Sampling(logit_bias={1: -100.0}, seed=1), logits, 50)) == {0, 2}


@pytest.mark.parametrize(
    "sampling", [Sampling(temperature=0), Sampling(seed=1), Sampling(top_k=3, top_p=0.5, seed=1)]
)
def test_only_allowed_tokens_are_chosen(sampling: Sampling) -> None:
    logits = random_logits(2000)
    mask = np.zeros(2000, dtype=np.bool_)
    mask[[3, 70, 1999]] = True
    assert set(draws(sampling, logits, 40, mask)) <= {3, 70, 1999}


def test_bias_cannot_lift_a_token_over_the_mask() -> None:
    mask = np.array([True, False])
    assert draws(Sampling(temperature=0, logit_bias={1: 100.0}), np.zeros(2, np.float32), 1, mask) == [0]


SAMPLINGS = [Sampling(temperature=0), Sampling(), Sampling(top_k=2), Sampling(top_p=0.5), Sampling(min_p=0.1)]


@pytest.mark.parametrize("sampling", SAMPLINGS)
@pytest.mark.parametrize("place", [0, 77, 199])
def test_nan_is_an_error_and_never_a_token(sampling: Sampling, place: int) -> None:
    logits = random_logits(200)
    logits[place] = np.nan
    with pytest.raises(EngineError, match="NaN"):
        draws(sampling, logits, 1)


@pytest.mark.parametrize("sampling", SAMPLINGS)
def test_no_token_left_is_an_error_and_never_token_zero(sampling: Sampling) -> None:
    with pytest.raises(EngineError, match="no token may follow"):
        draws(sampling, random_logits(200), 1, np.zeros(200, dtype=np.bool_))


@pytest.mark.parametrize("sampling", SAMPLINGS)
def test_infinity_is_an_error(sampling: Sampling) -> None:
    logits = random_logits(200)
    logits[5] = np.inf
    with pytest.raises(EngineError, match="infinity"):
        draws(sampling, logits, 1)


def test_tokens_of_probability_zero_are_never_drawn() -> None:
    logits = np.full(2000, -np.inf, dtype=np.float32)
    logits[[0, 511, 512, 1500]] = 0.0
    assert set(draws(Sampling(seed=3), logits, 200)) == {0, 511, 512, 1500}


def test_logprobs_are_log_softmax() -> None:
    logits = random_logits(3000)
    exact = logits.astype(np.float64)
    exact = exact - exact.max() - math.log(np.exp(exact - exact.max()).sum())
    chosen, top = logprobs(logits, 17, 5)
    assert chosen == pytest.approx(exact[17], abs=1e-5)
    assert [entry.token for entry in top] == np.argsort(-exact, kind="stable")[:5].tolist()
    assert [entry.logprob for entry in top] == pytest.approx(np.sort(exact)[::-1][:5].tolist(), abs=1e-5)
    assert logprobs(logits, 17, 0)[1] == ()


def test_logprobs_of_broken_logits_are_an_error() -> None:
    with pytest.raises(EngineError, match="NaN"):
        logprobs(np.array([0, np.nan], dtype=np.float32), 0, 1)


def test_choices_cover_the_whole_vocabulary() -> None:
    seen = Counter(draws(Sampling(seed=5), np.zeros(700, dtype=np.float32), 20_000))
    assert len(seen) == 700
    assert max(seen) == 699
