"""The gate control: on made-up exchanges, and through a session without a server."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from headstart.accept.exchange import Exchange, Failure
from headstart.accept.gates import control
from headstart.accept.gates.control import Sides
from headstart.accept.gates.evidence import reuse_of
from headstart.accept.judge import Answer, Sameness
from headstart.accept.session import Options
from headstart.accept.verdict import Outcome, Verdict
from tests.accept.gates.scripted import CALIBRATION, FAILURES, HEAD, TIERS, CacheOff, Scripted, exchange

SAME = Sameness(Answer.SAME, "text", "the same text")
OTHER = Sameness(Answer.DIFFERENT, "text", '"2" where the cold answer is "1"', 4.0)
OPEN = Sameness(Answer.UNDECIDED, "text", "nothing to compare by")
READ = exchange(reused=0)
WARM = exchange(reused=999, waited_s=0.1)


def sides(
    off: Sequence[float] = (10.0, 10.2),
    warm: Sequence[float] = (0.1, 0.1),
    *,
    repeat: Exchange = READ,
    answers: Sequence[Sameness] = (SAME, SAME),
    warm_last: Exchange = WARM,
) -> Sides:
    return Sides(
        TIERS[0],
        [exchange(waited_s=waited) for waited in off],
        repeat,
        reuse_of(repeat, CALIBRATION),
        READ,
        [exchange(reused=999, waited_s=waited) for waited in warm],
        reuse_of(warm_last, CALIBRATION),
        list(zip(("first sight", "repeat"), answers, strict=True)),
    )


def answers(one: Sides) -> Verdict:
    return control.answers_verdict("control", one, HEAD)


def saves(one: Sides) -> Verdict:
    return control.saves_verdict("control", one, HEAD)


def test_answers_without_a_cache_are_those_with_it() -> None:
    assert answers(sides()).outcome is Outcome.PASS
    verdict = answers(sides(answers=(SAME, OTHER)))
    assert verdict.outcome is Outcome.FAIL
    assert verdict.reason.startswith("repeat with the cache on")
    assert verdict.figures["score_difference"] == 4.0
    assert answers(sides(answers=(OTHER, OPEN))).outcome is Outcome.FAIL
    assert answers(sides(answers=(OPEN, SAME))).outcome is Outcome.INCONCLUSIVE


def test_what_the_cache_saves() -> None:
    verdict = saves(sides())
    assert verdict.outcome is Outcome.PASS
    assert "0.100 s with the cache, 10 s without: saves 10 s (99 %)" in verdict.reason
    assert verdict.figures["off_spread_s"] == pytest.approx(0.2)
    assert verdict.figures["saved_s"] == pytest.approx(10.0)


def test_a_cache_that_costs_or_saves_nothing() -> None:
    assert saves(sides(off=(1.0, 1.1), warm=(5.0, 5.1))).outcome is Outcome.FAIL
    assert saves(sides(off=(1.0, 1.4), warm=(1.1, 1.3))).outcome is Outcome.INCONCLUSIVE
    nothing = sides(off=(10.0, 10.4), warm=(10.1, 10.3), warm_last=READ)
    assert saves(nothing).outcome is Outcome.FAIL
    assert "saves nothing" in saves(nothing).reason


def test_a_control_with_its_cache_on_shows_nothing() -> None:
    stated = sides(repeat=exchange(reused=900))
    clocked = sides(repeat=exchange(reused=None, waited_s=0.1))
    for one in (stated, clocked):
        for verdict in (answers(one), saves(one)):
            assert verdict.outcome is Outcome.INCONCLUSIVE
            assert "the control's cache is on" in verdict.reason
    slow_hour = sides(off=(0.15,), repeat=exchange(reused=0, waited_s=0.1))
    assert answers(slow_hour).outcome is Outcome.PASS
    assert answers(sides(repeat=exchange(reused=HEAD))).outcome is Outcome.PASS
    assert answers(sides(repeat=exchange(reused=None))).outcome is Outcome.PASS


def with_control(problem: str | None = None) -> Scripted:
    return Scripted(baseline=CacheOff(problem=problem))


def test_a_sound_server_passes_at_every_tier_and_leaves_its_samples() -> None:
    session = with_control()
    verdicts = control.GATE.run(session)
    assert [(v.tier, v.part) for v in verdicts] == [
        ("1k", "answers"),
        ("1k", "saves"),
        ("2k", "answers"),
        ("2k", "saves"),
    ]
    assert {verdict.outcome for verdict in verdicts} == {Outcome.PASS}
    assert {name: len(done) for name, done in session.found.control.items()} == {"1k": 2, "2k": 2}
    assert (session.baseline.started, session.baseline.ended) == (4, 1)


def test_an_answer_that_depends_on_the_cache_fails() -> None:
    session = with_control()
    session.bent["1k, cache on, again 1"] = {"text": "99999", "scores": ()}
    assert control.GATE.run(session)[0].outcome is Outcome.FAIL


def test_a_control_that_does_not_start_is_no_fault_of_the_server() -> None:
    session = with_control("the server ended with status 2")
    verdicts = control.GATE.run(session)
    assert [verdict.outcome for verdict in verdicts] == [Outcome.INCONCLUSIVE] * 2
    assert "status 2" in verdicts[0].reason
    assert session.baseline.ended == 1


def test_a_server_that_does_not_come_back_after_its_control_is_told() -> None:
    session = with_control()
    session.baseline.end = lambda: "no answer for 60 s"
    assert control.GATE.run(session)[-1].reason.endswith("no answer for 60 s")


@pytest.mark.parametrize("failure", FAILURES)
@pytest.mark.parametrize("label", ["1k, cache on", "1k, cache off 2", "1k, cache off, again"])
def test_failures_on_either_side(failure: Failure, label: str) -> None:
    session = with_control()
    session.bent[label] = {"failure": failure}
    first = control.GATE.run(session)[0]
    assert first.outcome is (Outcome.INCONCLUSIVE if failure.kind == "refused" else Outcome.FAIL)
    assert failure.detail in first.reason


def test_without_a_control_or_a_tier() -> None:
    assert [v.outcome for v in control.GATE.run(Scripted())] == [Outcome.UNSUPPORTED]
    session = with_control()
    session.options = Options(())
    assert [v.outcome for v in control.GATE.run(session)] == [Outcome.INCONCLUSIVE]
