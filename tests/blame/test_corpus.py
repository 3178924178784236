"""The corpus: the right cause, at the very character, and no blame where there is none."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from headstart.blame.causes import CAUSES, cause_of
from headstart.blame.exchange import Exchange
from headstart.blame.verdict import TurnVerdict, judge
from tests.blame.corpus import front_cases, history_cases, server
from tests.blame.corpus.case import Case
from tests.blame.corpus.clean import CLEAN

CASES: list[Case] = [*front_cases.CASES, *history_cases.CASES, *server.CASES]
RIGHT_SHARE = 0.95
# Seen in rendered prompts and tokens only.
BELOW_BODIES = {"TEMPLATE_SUFFIX", "RETOKENISED"}


def blamed(case: Case) -> TurnVerdict:
    return next(verdict for verdict in judge(case.sent()) if verdict.turn.exchange.number == case.number)


def all_findings(verdicts: list[TurnVerdict]) -> list[tuple[int, str, str]]:
    return [
        (verdict.turn.exchange.number, verdict.finding.cause, verdict.finding.said)
        for verdict in verdicts
        if verdict.finding
    ]


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.cause}: {case.name}")
def test_the_right_cause_is_named(case: Case) -> None:
    verdict = blamed(case)
    assert verdict.finding is not None, all_findings(judge(case.sent()))
    assert (verdict.finding.cause, verdict.finding.said) == (case.cause, verdict.finding.said)
    assert case.said in verdict.finding.said


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.cause}: {case.name}")
def test_no_other_turn_is_blamed_for_anything_else(case: Case) -> None:
    others = [
        found for found in all_findings(judge(case.sent())) if found[1] not in (case.cause, *case.besides)
    ]
    assert others == []


@pytest.mark.parametrize(
    "case", [case for case in CASES if case.path is not None], ids=lambda case: f"{case.cause}: {case.name}"
)
def test_the_place_is_exact(case: Case) -> None:
    verdict = blamed(case)
    assert verdict.finding is not None
    assert verdict.finding.path == case.path
    prompt = verdict.turn.prompt
    assert prompt is not None
    piece = next(piece for piece in prompt.pieces if piece.path == case.path)
    if case.left is not None:
        ahead = sum(len(one.text) for one in prompt.pieces[: prompt.pieces.index(piece)])
        assert verdict.finding.char == ahead + (
            piece.text.index(case.left) + len(case.left) if case.left else 0
        )


@pytest.mark.parametrize("sent", CLEAN.values(), ids=CLEAN.keys())
def test_nobody_is_blamed_without_reason(sent: Callable[[], list[Exchange]]) -> None:
    assert all_findings(judge(sent())) == []


def test_every_cause_has_two_cases() -> None:
    told = [case.cause for case in CASES]
    few = {cause.CODE for cause in CAUSES if told.count(cause.CODE) < 2}
    assert few == BELOW_BODIES
    assert len(CASES) >= 60
    assert len(CLEAN) >= 15
    assert len({case.name for case in CASES}) == len(CASES)


def test_the_share_of_right_causes() -> None:
    right = [(found := blamed(case).finding) is not None and found.cause == case.cause for case in CASES]
    assert sum(right) / len(right) >= RIGHT_SHARE


@pytest.mark.parametrize("cause", CAUSES, ids=lambda cause: cause.CODE)
def test_a_cause_explains_itself(cause: object) -> None:
    known = cause_of(cause.CODE)  # type: ignore[attr-defined]
    sentences = known.PLAIN.count(". ") + 1
    assert known.PLAIN.endswith(".")
    assert 1 <= sentences <= 3
    assert known.FIX.text.endswith(".")
