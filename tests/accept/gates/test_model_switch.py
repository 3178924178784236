"""Model switch: on made-up exchanges, and through a session without a server."""

from __future__ import annotations

import pytest

from headstart.accept.exchange import Counters, Exchange, Failure
from headstart.accept.gates import model_switch
from headstart.accept.gates.evidence import Kept, by_facts, reuse_of
from headstart.accept.gates.model_switch import Comeback, First
from headstart.accept.judge import Answer, Sameness
from headstart.accept.servers import Facts
from headstart.accept.session import Options
from headstart.accept.verdict import Outcome, Verdict
from tests.accept.gates.scripted import CALIBRATION, FAILURES, HEAD, TIERS, Scripted, exchange, failed

SAME = Sameness(Answer.SAME, "scores", "log-probabilities differ by 0", 0.0)
OTHER = Sameness(Answer.DIFFERENT, "scores", "log-probabilities differ by 7", 7.0)
OPEN = Sameness(Answer.UNDECIDED, "text", "nothing to compare by")


def starts(
    one: Exchange,
    answer: Sameness = SAME,
    *,
    as_a: Answer = Answer.DIFFERENT,
    other: bool | None = True,
) -> Verdict:
    first = First(TIERS[0], "b", one, reuse_of(one, CALIBRATION), answer, as_a, other)
    return model_switch.starts_at_zero("model_switch", first, HEAD)


def back(
    after: Exchange, answer: Sameness = SAME, was_warm: Kept | None = Kept.ALL, before: Exchange | None = None
) -> Verdict:
    reuse = reuse_of(after, CALIBRATION)
    one = Comeback(TIERS[0], "A again", "a", before or exchange(), after, reuse, answer, was_warm)
    return model_switch.comes_back("model_switch", one, 1, HEAD)


def test_b_starts_at_zero() -> None:
    verdict = starts(exchange(reused=0))
    assert verdict.outcome is Outcome.PASS
    assert "reused 0 of 1000 tokens" in verdict.reason
    assert starts(exchange(reused=HEAD)).outcome is Outcome.PASS


def test_b_on_the_state_of_a_fails() -> None:
    assert starts(exchange(reused=900)).outcome is Outcome.FAIL
    assert starts(exchange(reused=900), other=None).outcome is Outcome.FAIL
    hidden = exchange(reused=None, counters=Counters(reused_tokens=900))
    assert starts(hidden).outcome is Outcome.FAIL
    assert starts(exchange(reused=0), OTHER).outcome is Outcome.FAIL


def test_two_names_that_answer_alike_without_digests_may_be_one_model() -> None:
    for as_a in (Answer.SAME, Answer.UNDECIDED):
        verdict = starts(exchange(reused=900), other=None, as_a=as_a)
        assert verdict.outcome is Outcome.INCONCLUSIVE
        assert "one model" in verdict.reason


def test_unknown_is_not_zero() -> None:
    assert starts(exchange(reused=None), by_facts(True)).outcome is Outcome.INCONCLUSIVE
    assert starts(exchange(reused=None), SAME).outcome is Outcome.PASS


def test_a_comes_back_from_its_own_state() -> None:
    verdict = back(exchange(reused=999, waited_s=0.3))
    assert verdict.outcome is Outcome.PASS
    assert "back at a: reused 999 of 1000 tokens, first token after 0.300 s" in verdict.reason


def test_state_lost_to_the_switch_fails() -> None:
    for reused in (0, 500):
        verdict = back(exchange(reused=reused))
        assert verdict.outcome is Outcome.FAIL
        assert "lost to the switch" in verdict.reason
    assert back(exchange(reused=0), was_warm=None).outcome is Outcome.FAIL


def test_state_that_never_was_is_not_lost() -> None:
    assert back(exchange(reused=0), was_warm=Kept.NONE).outcome is Outcome.INCONCLUSIVE
    assert back(exchange(reused=0), was_warm=Kept.UNKNOWN).outcome is Outcome.INCONCLUSIVE


def test_without_a_count_loading_hides_the_clock() -> None:
    assert back(exchange(reused=None)).outcome is Outcome.INCONCLUSIVE
    assert back(exchange(reused=None, waited_s=0.1)).outcome is Outcome.PASS


def test_another_answer_after_the_switch_fails() -> None:
    assert back(exchange(reused=999), OTHER).outcome is Outcome.FAIL
    assert back(exchange(reused=999), OPEN).outcome is Outcome.INCONCLUSIVE


@pytest.mark.parametrize("failure", FAILURES)
def test_a_failed_request_is_a_verdict(failure: Failure) -> None:
    refused = failure.kind == "refused"
    assert back(failed(failure)).outcome is (Outcome.INCONCLUSIVE if refused else Outcome.FAIL)


def test_equal_weights_are_refused_as_a_pair() -> None:
    digests = {"a": "cafe" * 16, "b": "cafe" * 16, "c": "f00d" * 16}
    verdict = model_switch.refuse_pair("model_switch", "a", "b", digests)
    assert verdict is not None
    assert verdict.outcome is Outcome.UNSUPPORTED
    assert "a and b are one model (weights cafecafecafe)" in verdict.reason
    assert model_switch.refuse_pair("model_switch", "a", "c", digests) is None
    assert model_switch.refuse_pair("model_switch", "a", "b", {"a": "cafe"}) is None
    assert model_switch.refuse_pair("model_switch", "a", "a", {}) is not None


def test_the_second_model_is_the_one_asked_for_or_another_of_the_list() -> None:
    facts = Facts("some server", model="a", models=("a", "b", "c"))
    assert model_switch.second_model(Options(TIERS), facts) == "b"
    assert model_switch.second_model(Options(TIERS, model="b"), facts) == "a"
    assert model_switch.second_model(Options(TIERS, other_model="c"), facts) == "c"
    assert model_switch.second_model(Options(TIERS), Facts("some server", model="a", models=("a",))) is None


def session(**fields: object) -> Scripted:
    facts = Facts("some server", model="a", models=("a", "b"), block_tokens=1)
    return Scripted(facts=facts, **fields)  # type: ignore[arg-type]


def outcomes(one: Scripted) -> dict[str, Outcome]:
    return {verdict.part: verdict.outcome for verdict in model_switch.GATE.run(one)}


def test_a_sound_server_passes() -> None:
    assert set(outcomes(session()).values()) == {Outcome.PASS}
    assert list(outcomes(session())) == ["B starts", "A again", "B again"]


def test_a_server_that_forgets_a_fails() -> None:
    one = session()
    one.bent["A after B"] = {"reused": 0}
    assert outcomes(one) == {"B starts": Outcome.PASS, "A again": Outcome.FAIL, "B again": Outcome.PASS}


def test_a_refused_second_model_is_named() -> None:
    one = session()
    one.bent["1k, B"] = {"failure": FAILURES[2]}
    (verdict,) = model_switch.GATE.run(one)
    assert verdict.outcome is Outcome.INCONCLUSIVE
    assert "no such model" in verdict.reason


@pytest.mark.parametrize("failure", FAILURES)
@pytest.mark.parametrize("label", ["1k, A", "1k, A after B", "1k, B after A"])
def test_failures_on_the_way(failure: Failure, label: str) -> None:
    one = session()
    one.bent[label] = {"failure": failure}
    found = model_switch.GATE.run(one)
    expected = Outcome.INCONCLUSIVE if failure.kind == "refused" else Outcome.FAIL
    assert expected in [verdict.outcome for verdict in found]
    assert any(failure.detail in verdict.reason for verdict in found)


def test_without_a_second_model_or_a_tier() -> None:
    assert list(outcomes(Scripted()).values()) == [Outcome.UNSUPPORTED]
    assert list(outcomes(session(options=Options(()))).values()) == [Outcome.INCONCLUSIVE]
