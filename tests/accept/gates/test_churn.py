"""Churn: on made-up exchanges, and through a session without a server."""

from __future__ import annotations

from dataclasses import replace

import pytest

from headstart.accept.exchange import Counters, Failure
from headstart.accept.gates import churn
from headstart.accept.gates.churn import Visit
from headstart.accept.gates.evidence import Kept, reuse_of
from headstart.accept.gates.survival import Return
from headstart.accept.judge import Answer, Sameness
from headstart.accept.verdict import Outcome, Verdict
from tests.accept.gates.scripted import CALIBRATION, FAILURES, HEAD, TIERS, Scripted, exchange

SAME = Sameness(Answer.SAME, "text", "the same text")
OTHER = Sameness(Answer.DIFFERENT, "text", '"2" where the cold answer is "1"')
OPEN = Sameness(Answer.UNDECIDED, "text", "nothing to compare by")
STATES = {Kept.ALL: 999, Kept.PART: 100, Kept.NONE: 0, Kept.UNKNOWN: None}


def visit(state: Kept, answer: Sameness = SAME, reused: int | None = -1) -> Visit:
    again = exchange(reused=STATES[state] if reused == -1 else reused, waited_s=5.1)
    return Visit(exchange(), again, reuse_of(again, CALIBRATION), state, answer)


def warm(*states: Kept, churned: int = 4) -> Verdict:
    return churn.stay_warm("churn", TIERS[0], [visit(state) for state in states], churned)


@pytest.mark.parametrize(
    ("reused", "word"), [(999, "hit,"), (500, "part hit"), (0, "miss"), (None, "hit or miss unknown")]
)
def test_a_return_may_hit_or_miss_and_says_which(reused: int | None, word: str) -> None:
    after = exchange(reused=reused, waited_s=5.1)
    back = Return(TIERS[1], exchange(), after, reuse_of(after, CALIBRATION), SAME)
    verdict = churn.returned("churn", back, 24, allowance=1, head=HEAD, evicted=3)
    assert verdict.outcome is Outcome.PASS
    assert f"after 24 unrelated prompts: {word}" in verdict.reason
    assert "3 entries evicted" in verdict.reason
    assert (verdict.tier, verdict.figures["reused_tokens"]) == ("2k", reused)


@pytest.mark.parametrize(("answer", "outcome"), [(OTHER, Outcome.FAIL), (OPEN, Outcome.INCONCLUSIVE)])
def test_a_return_is_judged_by_its_answer(answer: Sameness, outcome: Outcome) -> None:
    after = exchange(reused=999, waited_s=0.1)
    back = Return(TIERS[0], exchange(), after, reuse_of(after, CALIBRATION), answer)
    verdict = churn.returned("churn", back, 24, allowance=1, head=HEAD, evicted=None)
    assert verdict.outcome is outcome
    assert verdict.figures["evictions"] is None
    assert "evicted" not in verdict.reason


def test_how_many_stay_warm() -> None:
    verdict = warm(Kept.ALL, Kept.ALL, Kept.NONE, Kept.NONE)
    assert verdict.outcome is Outcome.PASS
    assert "2 of 4 prompts of 1k stay warm" in verdict.reason
    assert verdict.figures["warm_prompts"] == 2


def test_all_warm_says_that_the_limit_was_not_reached() -> None:
    verdict = warm(*[Kept.ALL] * 4)
    assert verdict.outcome is Outcome.PASS
    assert "limit was not reached" in verdict.reason
    full = churn.stay_warm("churn", TIERS[0], [visit(Kept.ALL)], 1, full=True)
    assert "what came before them was evicted" in full.reason


def test_none_warm_fails() -> None:
    assert warm(Kept.NONE, Kept.NONE).outcome is Outcome.FAIL
    part = warm(Kept.PART, Kept.NONE, Kept.NONE)
    assert part.outcome is Outcome.FAIL
    assert "partly: reused 100 of 1000" in part.reason


def test_half_a_prompt_back_is_warm_however_coarse_the_cache_is() -> None:
    visits = [visit(Kept.PART, reused=512), visit(Kept.PART, reused=499), visit(Kept.NONE)]
    verdict = churn.stay_warm("churn", TIERS[0], visits, 4)
    assert (verdict.figures["warm_prompts"], verdict.figures["partly_warm_prompts"]) == (1, 1)
    assert verdict.outcome is Outcome.PASS


def test_unknown_is_not_counted() -> None:
    verdict = warm(Kept.ALL, Kept.UNKNOWN)
    assert verdict.outcome is Outcome.INCONCLUSIVE
    assert verdict.figures["warm_prompts"] is None
    assert warm().outcome is Outcome.INCONCLUSIVE


def test_one_other_answer_among_many_fails() -> None:
    visits = [visit(Kept.ALL), visit(Kept.ALL, OTHER)]
    verdict = churn.stay_warm("churn", TIERS[0], visits, 2)
    assert verdict.outcome is Outcome.FAIL
    assert "1 of 2 prompts answer otherwise" in verdict.reason


def test_a_large_cache_keeps_everything() -> None:
    verdicts = churn.GATE.run(Scripted())
    assert [(v.part, v.tier, v.outcome) for v in verdicts] == [
        ("return", "1k", Outcome.PASS),
        ("return", "2k", Outcome.PASS),
        ("stay warm", "1k", Outcome.PASS),
    ]
    assert "hit" in verdicts[0].reason
    assert verdicts[2].figures["warm_prompts"] == 4


def test_a_small_cache_keeps_the_newest_and_misses_the_old() -> None:
    session = Scripted(holds=3)
    verdicts = churn.GATE.run(session)
    assert [verdict.outcome for verdict in verdicts] == [Outcome.PASS] * 3
    assert "miss" in verdicts[0].reason
    assert 1 <= verdicts[2].figures["warm_prompts"] <= 3  # type: ignore[operator]


def test_wrong_only_after_churn_fails() -> None:
    session = Scripted()
    session.bent["2k, after the churn"] = {"text": "99999", "scores": ()}
    outcomes = [verdict.outcome for verdict in churn.GATE.run(session)]
    assert outcomes == [Outcome.PASS, Outcome.FAIL, Outcome.PASS]


def test_an_unrelated_prompt_that_answers_otherwise_fails() -> None:
    session = Scripted()
    session.bent["unrelated 2 again"] = {"text": "99999", "scores": ()}
    assert churn.GATE.run(session)[-1].outcome is Outcome.FAIL


@pytest.mark.parametrize("failure", FAILURES)
@pytest.mark.parametrize("label", ["before the churn", "unrelated 3", "unrelated 3 again"])
def test_a_failure_ends_the_gate_with_a_verdict(failure: Failure, label: str) -> None:
    session = Scripted()
    session.bent[label] = {"failure": failure}
    (verdict,) = churn.GATE.run(session)
    assert verdict.outcome is (Outcome.INCONCLUSIVE if failure.kind == "refused" else Outcome.FAIL)
    assert failure.detail in verdict.reason


def test_evictions_are_those_of_the_churn() -> None:
    session = Scripted()
    counted = iter([Counters(evictions=5), Counters(evictions=12)])
    session.counters = lambda: next(counted)  # type: ignore[method-assign]
    assert churn.GATE.run(session)[0].figures["evictions"] == 7


def test_without_unrelated_prompts_nothing_is_shown() -> None:
    session = Scripted()
    session.options = replace(session.options, churn_prompts=0)
    assert [verdict.outcome for verdict in churn.GATE.run(session)] == [Outcome.INCONCLUSIVE]
