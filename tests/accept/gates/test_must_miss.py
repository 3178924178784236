"""Must miss: on made-up exchanges, and through a session without a server."""

from __future__ import annotations

from dataclasses import replace

import pytest

from headstart.accept.clock import Doubt
from headstart.accept.exchange import Counters, Exchange, Failure
from headstart.accept.gates import must_miss
from headstart.accept.gates.evidence import Kept, by_facts, reuse_of
from headstart.accept.gates.must_miss import Change, Stranger
from headstart.accept.judge import Answer, Reach, Sameness, Warmth
from headstart.accept.servers import Facts
from headstart.accept.session import Options
from headstart.accept.verdict import Outcome, Verdict
from tests.accept.gates.made_up import doubt
from tests.accept.gates.scripted import CALIBRATION, FAILURES, TIERS, Named, Scripted, exchange, failed

SAME = Sameness(Answer.SAME, "scores", "log-probabilities differ by 0")
OTHER = Sameness(Answer.DIFFERENT, "scores", "log-probabilities differ by 7")


def judged(
    one: Exchange,
    answer: Sameness = SAME,
    *,
    shared: int = 12,
    foreign: bool = False,
    hit: Kept = Kept.ALL,
    doubt: Doubt | None = None,
) -> Verdict:
    reuse = reuse_of(one, CALIBRATION)
    reach = Reach(shared, shared)
    change = Change("other text", "another text")
    stranger = Stranger(TIERS[0], change, one, reuse, reach, foreign, answer, hit, 10.1, doubt)
    return must_miss.missed("must_miss", stranger)


def test_a_miss_beside_a_hit_passes() -> None:
    verdict = judged(exchange(reused=12))
    assert verdict.outcome is Outcome.PASS
    assert "reused 12 of 1000 tokens, it shares 12" in verdict.reason
    assert verdict.figures["beyond_tokens"] == 0


def test_one_token_too_many_fails() -> None:
    verdict = judged(exchange(reused=13))
    assert verdict.outcome is Outcome.FAIL
    assert verdict.figures["beyond_tokens"] == 1


def test_counters_give_away_what_the_reply_hides() -> None:
    hidden = exchange(reused=0, counters=Counters(reused_tokens=900))
    assert judged(hidden).outcome is Outcome.FAIL
    close = exchange(reused=0, counters=Counters(reused_tokens=15))
    assert judged(close).outcome is Outcome.PASS


def test_the_clock_gives_away_what_the_reply_hides() -> None:
    quick = exchange(reused=0, waited_s=0.1)
    verdict = judged(quick)
    assert verdict.outcome is Outcome.INCONCLUSIVE
    assert "first token after 0.100 s where reading took 10 s: the clock disagrees" in verdict.reason
    assert judged(quick, doubt=doubt(0.1, 10.0, 0.1, Warmth.WARM)).outcome is Outcome.FAIL
    assert judged(quick, doubt=doubt(0.1, 10.0, 9.0, Warmth.WARM)).outcome is Outcome.INCONCLUSIVE
    agreed = exchange(reused=0, waited_s=0.1, counters=Counters(reused_tokens=0))
    assert judged(agreed).outcome is Outcome.PASS


def test_the_answer_gives_away_what_the_reply_hides() -> None:
    assert judged(exchange(reused=0), foreign=True).outcome is Outcome.FAIL
    assert judged(exchange(reused=0), OTHER).outcome is Outcome.FAIL


def test_a_miss_shows_nothing_where_nothing_ever_hits() -> None:
    for hit in (Kept.NONE, Kept.UNKNOWN):
        assert judged(exchange(reused=0), hit=hit).outcome is Outcome.INCONCLUSIVE
    assert judged(exchange(reused=0), hit=Kept.PART).outcome is Outcome.PASS


def test_the_servers_word_alone_is_not_enough() -> None:
    unclear = exchange(reused=0, waited_s=5.1)
    assert judged(unclear, by_facts(None)).outcome is Outcome.INCONCLUSIVE
    assert judged(unclear, by_facts(True)).outcome is Outcome.PASS
    assert judged(exchange(reused=0), by_facts(None)).outcome is Outcome.PASS


def test_unknown_is_judged_by_the_clock_and_the_answer() -> None:
    assert judged(exchange(reused=None), by_facts(None)).outcome is Outcome.PASS
    assert judged(exchange(reused=None, waited_s=5.1), by_facts(None)).outcome is Outcome.INCONCLUSIVE
    assert judged(exchange(reused=None, waited_s=5.1)).figures["beyond_tokens"] is None


@pytest.mark.parametrize("failure", FAILURES)
def test_a_failed_request_is_a_verdict(failure: Failure) -> None:
    refused = failure.kind == "refused"
    assert judged(failed(failure)).outcome is (Outcome.INCONCLUSIVE if refused else Outcome.FAIL)


def outcomes(session: Scripted) -> dict[str, Outcome]:
    return {verdict.part: verdict.outcome for verdict in must_miss.GATE.run(session)}


def test_a_sound_server_passes_and_what_it_does_not_offer_is_named() -> None:
    assert outcomes(Scripted()) == {
        "other text": Outcome.PASS,
        "first word": Outcome.PASS,
        "adapter or option": Outcome.UNSUPPORTED,
    }


def test_state_of_another_conversation_handed_out_as_nothing_fails() -> None:
    session = Scripted()
    session.bent["1k, another text"] = {"text": "10001", "scores": ()}
    session.bent["1k, another text, cache off"] = {}
    assert outcomes(session)["other text"] is Outcome.FAIL
    session = Scripted(offers_cold=False)
    session.bent["1k, another text"] = {"text": "10001", "scores": ()}
    assert outcomes(session)["other text"] is Outcome.FAIL


def test_a_hit_behind_another_first_word_fails() -> None:
    session = Scripted()
    session.bent["1k, another first word"] = {"reused": 900}
    assert outcomes(session)["first word"] is Outcome.FAIL


def test_cold_answers_are_asked_for_last() -> None:
    session = Scripted()
    must_miss.GATE.run(session)
    off = [exchange.ask.label.endswith("cache off") for exchange in session.sent]
    assert off == sorted(off)


def test_an_adapter_chosen_by_name_may_not_use_the_models_state() -> None:
    facts = Facts("vLLM", model="a", adapters=("poet",))
    session = Scripted(facts=facts, server=Named("vllm"))
    found = outcomes(session)
    assert found["other adapter"] is Outcome.PASS
    assert found["cache salt"] is Outcome.PASS
    session = Scripted(facts=facts, server=Named("vllm"))
    session.bent["adapter poet"] = {"reused": 990}
    assert outcomes(session)["other adapter"] is Outcome.FAIL


def test_a_salt_that_is_ignored_fails() -> None:
    session = Scripted(server=Named("vllm"))
    session.bent["another cache salt"] = {"reused": 990}
    assert outcomes(session)["cache salt"] is Outcome.FAIL


def test_adapters_are_chosen_as_the_server_wants() -> None:
    facts = Facts("llama-server", adapters=("poet.gguf", "cook.gguf"))
    one, two = must_miss.adapter_changes("llama_server", facts)
    assert one.options == {"lora": [{"id": 0, "scale": 0.5}]}
    assert two.options == {"lora": [{"id": 1, "scale": 0.5}]}
    assert must_miss.adapter_changes("headstart", facts) == []


@pytest.mark.parametrize("failure", FAILURES)
def test_a_failure_before_anything_is_known_ends_the_gate(failure: Failure) -> None:
    session = Scripted()
    session.bent["1k, known"] = {"failure": failure}
    assert list(outcomes(session).values()) == [
        Outcome.INCONCLUSIVE if failure.kind == "refused" else Outcome.FAIL
    ]


def test_without_a_tier_nothing_is_shown() -> None:
    assert list(outcomes(Scripted(options=Options(()))).values()) == [Outcome.INCONCLUSIVE]


def test_a_server_without_a_cache_is_not_passed() -> None:
    session = Scripted(holds=1)
    session.options = replace(session.options, tiers=TIERS[:1])
    session.bent["1k, known"] = {"reused": 0}
    assert set(outcomes(session).values()) == {Outcome.INCONCLUSIVE, Outcome.UNSUPPORTED}


def test_a_known_prompt_that_was_pushed_out_meanwhile_is_read_and_asked_again() -> None:
    """A cache of a few prompts has dropped what an earlier gate read."""
    session = Scripted(holds=1)
    known = session.first_sight(session.small)
    session.first_sight = lambda tier: known  # type: ignore[method-assign]
    session.send(session.ask(session.fresh(session.small), label="of another gate"))
    assert list(outcomes(session).values()) == [Outcome.PASS, Outcome.PASS, Outcome.UNSUPPORTED]
