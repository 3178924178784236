"""Accelerators: on made-up exchanges, and through a session without a server."""

from __future__ import annotations

import pytest

from headstart.accept.exchange import Ask, Counters, Exchange, Failure, Message
from headstart.accept.gates import accelerators
from headstart.accept.gates.accelerators import Drafts, Runs
from headstart.accept.gates.evidence import Kept
from headstart.accept.judge import Answer, Sameness
from headstart.accept.servers import Facts
from headstart.accept.session import Options
from headstart.accept.verdict import Outcome, Verdict
from tests.accept.gates.scripted import FAILURES, TIERS, Named, Scripted, exchange, failed

SAME = Sameness(Answer.SAME, "scores", "log-probabilities differ by 0.01", 0.01)
OTHER = Sameness(Answer.DIFFERENT, "scores", "log-probabilities differ by 7", 7.0)
OPEN = Sameness(Answer.UNDECIDED, "text", "nothing to compare by")
RAN = exchange(drafted=40, accepted=31)
PLAIN = exchange(drafted=0, accepted=0)


def judged(
    on: Exchange = RAN,
    off: Exchange = PLAIN,
    answers: tuple[Sameness, ...] = (SAME, SAME),
    warm: Kept = Kept.ALL,
) -> Verdict:
    pairs = [(f"pair {number}", answer) for number, answer in enumerate(answers)]
    return accelerators.judged("accelerators", "on and off", Runs(TIERS[0], [on], [off], pairs, [warm]))


def test_equal_answers_and_drafts_that_were_accepted_pass() -> None:
    verdict = judged()
    assert verdict.outcome is Outcome.PASS
    assert "drafted 40 tokens, accepted 31" in verdict.reason
    assert verdict.figures == {
        "drafted": 40,
        "accepted": 31,
        "score_difference": 0.01,
        "drafted_while_off": 0,
    }


def test_one_other_answer_fails_whether_or_not_drafts_are_counted() -> None:
    assert judged(answers=(SAME, OTHER)).outcome is Outcome.FAIL
    assert judged(exchange(), answers=(OTHER, OPEN)).outcome is Outcome.FAIL


@pytest.mark.parametrize(
    ("drafted", "accepted", "words"),
    [
        (None, None, "no counts"),
        (None, 3, "no counts"),
        (0, 0, "drafted 0 tokens"),
        (40, 0, "accepted 0"),
    ],
)
def test_a_switch_that_is_on_shows_nothing(drafted: int | None, accepted: int | None, words: str) -> None:
    verdict = judged(exchange(drafted=drafted, accepted=accepted))
    assert verdict.outcome is Outcome.INCONCLUSIVE
    assert words in verdict.reason
    assert verdict.figures["drafted"] == drafted


def test_speculation_that_stays_on_when_left_off_crosses_nothing() -> None:
    assert judged(off=RAN).outcome is Outcome.INCONCLUSIVE
    assert judged(off=exchange()).outcome is Outcome.PASS


def test_what_cannot_be_compared_or_was_never_warm_is_open() -> None:
    assert judged(answers=(SAME, OPEN)).outcome is Outcome.INCONCLUSIVE
    assert judged(warm=Kept.NONE).outcome is Outcome.INCONCLUSIVE
    assert judged(warm=Kept.UNKNOWN).outcome is Outcome.INCONCLUSIVE
    assert judged(warm=Kept.PART).outcome is Outcome.PASS


def test_counts_of_the_reply_come_before_those_of_the_server() -> None:
    counted = exchange(counters=Counters(drafted=12.0, accepted=9.0))
    assert accelerators.drafts_of([counted]) == Drafts(12, 9)
    both = exchange(drafted=5, accepted=4, counters=Counters(drafted=12.0, accepted=9.0))
    assert accelerators.drafts_of([both, counted]) == Drafts(17, 13)
    assert accelerators.drafts_of([exchange()]) == Drafts(None, None)
    assert accelerators.drafts_of([]) == Drafts(None, None)


def test_a_server_that_states_none_and_drafts_none_does_not_offer_it() -> None:
    for probe in (exchange(), PLAIN):
        verdict = accelerators.without("accelerators", None, probe)
        assert verdict is not None
        assert verdict.outcome is Outcome.UNSUPPORTED
    assert accelerators.without("accelerators", None, RAN) is None
    assert accelerators.without("accelerators", "mtp", None) is None


@pytest.mark.parametrize("failure", FAILURES)
def test_a_probe_that_fails_is_a_verdict(failure: Failure) -> None:
    verdict = accelerators.without("accelerators", None, failed(failure))
    assert verdict is not None
    assert verdict.outcome is (Outcome.INCONCLUSIVE if failure.kind == "refused" else Outcome.FAIL)


def test_the_next_turn_goes_on_from_the_reply() -> None:
    text = accelerators.next_turn(Ask(prompt="book\n\nkeep in mind: EARLY="), "12345", "l").prompt
    assert text == "book\n\nkeep in mind: EARLY=12345\n\nkeep in mind: EARLY="
    chat = accelerators.next_turn(Ask(messages=(Message("user", "book"),)), "12345", "l")
    assert [m.role for m in chat.messages] == ["user", "assistant", "user"]
    assert chat.messages[1].content == "12345"


def speculative(server: str = "llama_server") -> Scripted:
    facts = Facts("llama-server", model="a", block_tokens=1, speculative="on")
    session = Scripted(facts=facts, server=Named(server))
    session.bent["speculation on"] = {"drafted": 8, "accepted": 5}
    session.bent["speculation off"] = {"drafted": 0, "accepted": 0}
    session.bent["next turn"] = {"drafted": 8, "accepted": 5}
    return session


def outcomes(session: Scripted) -> dict[str, Outcome]:
    return {verdict.part: verdict.outcome for verdict in accelerators.GATE.run(session)}


def test_a_sound_server_without_speculation_does_not_offer_it() -> None:
    assert outcomes(Scripted()) == {"": Outcome.UNSUPPORTED}


def test_drafts_that_no_fact_states_are_judged_all_the_same() -> None:
    session = speculative()
    session.facts = Facts("some server", model="a", block_tokens=1)
    assert outcomes(session) == {"": Outcome.UNSUPPORTED}
    session.bent["does it draft"] = {"drafted": 3, "accepted": 1}
    assert outcomes(session)["on"] is Outcome.PASS


def test_a_server_without_a_way_to_leave_it_off_is_judged_cold_and_warm() -> None:
    found = outcomes(speculative("generic"))
    assert found == {
        "on": Outcome.PASS,
        "on and off": Outcome.UNSUPPORTED,
        "next turn": Outcome.PASS,
    }


def test_the_whole_cross() -> None:
    session = speculative()
    del session.bent["speculation off"]
    # The made-up cache keeps other options apart, as if another model answered; a real server does not.
    for words in ("off, warm", "off, warm again", "on, warm again"):
        session.bent[f"speculation {words}"] = {"reused": 2000, "drafted": 0, "accepted": 0}
    session.bent["speculation on, warm again"] = {"reused": 2000, "drafted": 8, "accepted": 5}
    assert set(outcomes(session).values()) == {Outcome.PASS}


def test_a_rejected_draft_left_in_the_state_fails() -> None:
    session = speculative("generic")
    session.bent["1k, next turn"] = {"text": "99999", "scores": (), "drafted": 8, "accepted": 5}
    session.bent["1k, next turn, cold, cache off"] = {}
    assert outcomes(session)["next turn"] is Outcome.FAIL
    session.offers_cold = False
    assert outcomes(session)["next turn"] is Outcome.INCONCLUSIVE


@pytest.mark.parametrize("failure", FAILURES)
@pytest.mark.parametrize(
    ("label", "part"), [("on, warm", "on"), ("off, cold", "on and off"), ("next turn", "next turn")]
)
def test_failures_on_the_way(failure: Failure, label: str, part: str) -> None:
    session = speculative()
    session.bent[f"speculation {label}" if label != part else label] = {"failure": failure}
    found = outcomes(session)
    assert found[part] is (Outcome.INCONCLUSIVE if failure.kind == "refused" else Outcome.FAIL)


def test_without_a_tier_nothing_is_shown() -> None:
    assert list(outcomes(Scripted(options=Options(()))).values()) == [Outcome.INCONCLUSIVE]
