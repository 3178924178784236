"""The rule of restart and crash, on made-up exchanges."""

from __future__ import annotations

from dataclasses import replace

import pytest

from headstart.accept.exchange import Counters, Exchange, Failure
from headstart.accept.gates import survival
from headstart.accept.gates.evidence import by_facts, reuse_of
from headstart.accept.gates.survival import Loss, Return
from headstart.accept.judge import Answer, Sameness
from headstart.accept.verdict import Outcome, Verdict
from tests.accept.gates.scripted import CALIBRATION, FAILURES, HEAD, TIERS, exchange, failed

SAME = Sameness(Answer.SAME, "scores", "log-probabilities differ by 0.01", 0.01)
OTHER = Sameness(Answer.DIFFERENT, "scores", "log-probabilities differ by 4.1", 4.1)
OPEN = Sameness(Answer.UNDECIDED, "text", "nothing to compare by")
NEW = Loss("a restart", True, True)
COUNTED = Counters(reused_tokens=999, ssd_loaded_entries=3)
WARM = exchange(reused=999, waited_s=0.1, counters=COUNTED)


def judged(
    after: Exchange = WARM,
    loss: Loss = NEW,
    answer: Sameness = SAME,
    before: Exchange | None = None,
) -> Verdict:
    back = Return(TIERS[0], before or exchange(), after, reuse_of(after, CALIBRATION), answer)
    return survival.verdict("restart", back, loss, allowance=1, head=HEAD)


def test_all_back_with_the_same_answer_passes_and_tells_the_figures() -> None:
    verdict = judged()
    assert verdict.outcome is Outcome.PASS
    assert "reused 999 of 1000 tokens after a restart" in verdict.reason
    assert "0.100 s instead of 10 s" in verdict.reason
    assert verdict.figures["gap_tokens"] == 1
    assert verdict.figures["ssd_loaded_entries"] == 3
    assert verdict.tier == "1k"


def test_another_answer_fails_however_much_came_back() -> None:
    assert judged(answer=OTHER).outcome is Outcome.FAIL
    assert judged(exchange(), answer=OTHER, loss=replace(NEW, disk=False)).outcome is Outcome.FAIL


def test_a_part_read_again_fails_with_the_gap() -> None:
    verdict = judged(exchange(reused=768, waited_s=2.4))
    assert verdict.outcome is Outcome.FAIL
    assert "232 were read again" in verdict.reason


@pytest.mark.parametrize(
    ("disk", "outcome"), [(True, Outcome.FAIL), (False, Outcome.UNSUPPORTED), (None, Outcome.UNSUPPORTED)]
)
def test_nothing_kept_fails_only_where_a_cache_on_disk_is_stated(disk: bool | None, outcome: Outcome) -> None:
    verdict = judged(exchange(reused=0), replace(NEW, disk=disk))
    assert verdict.outcome is outcome
    assert "reused 0 of 1000 tokens" in verdict.reason


def test_the_templates_head_is_no_sign_of_a_cache() -> None:
    assert judged(exchange(reused=HEAD), replace(NEW, disk=None)).outcome is Outcome.UNSUPPORTED


def test_nothing_stated_but_warm_by_the_clock_decides_nothing() -> None:
    verdict = judged(exchange(reused=0, waited_s=0.1), replace(NEW, disk=None))
    assert verdict.outcome is Outcome.INCONCLUSIVE
    assert "the clock disagrees with what it says" in verdict.reason
    agreed = exchange(reused=0, waited_s=0.1, counters=Counters(reused_tokens=0))
    assert judged(agreed, replace(NEW, disk=None)).outcome is Outcome.UNSUPPORTED


def test_a_slow_hour_of_the_machine_is_no_disagreement() -> None:
    quick = exchange(reused=0, waited_s=0.1)
    assert judged(quick, replace(NEW, disk=None), before=exchange(waited_s=0.15)).outcome is (
        Outcome.UNSUPPORTED
    )
    slow = exchange(reused=999, waited_s=8.0)
    assert judged(slow, before=exchange(waited_s=60.0)).outcome is Outcome.INCONCLUSIVE


def test_all_stated_but_cold_by_the_clock_decides_nothing() -> None:
    assert judged(exchange(reused=999, waited_s=10.1)).outcome is Outcome.INCONCLUSIVE
    counted = exchange(reused=999, waited_s=10.1, counters=COUNTED)
    assert judged(counted).outcome is Outcome.INCONCLUSIVE


def test_unknown_is_judged_by_the_clock() -> None:
    warm = judged(exchange(reused=None, waited_s=0.1))
    assert warm.outcome is Outcome.PASS
    assert "by the clock" in warm.reason
    assert warm.figures["reused_tokens"] is None
    assert judged(exchange(reused=None)).outcome is Outcome.INCONCLUSIVE
    assert judged(exchange(reused=None), replace(NEW, disk=None)).outcome is Outcome.UNSUPPORTED
    assert judged(exchange(reused=None, waited_s=5.1)).outcome is Outcome.INCONCLUSIVE
    unstreamed = exchange(reused=None, first_token_s=None)
    assert judged(unstreamed).outcome is Outcome.INCONCLUSIVE
    assert judged(exchange(reused=None, prompt_tokens=None)).outcome is Outcome.INCONCLUSIVE


def test_counters_stand_in_for_a_reply_that_does_not_say() -> None:
    verdict = judged(
        exchange(reused=None, waited_s=0.1, counters=Counters(read_tokens=1, ssd_loaded_entries=2))
    )
    assert verdict.outcome is Outcome.PASS
    assert "reused 999 of 1000 tokens by its counters" in verdict.reason


def test_loads_from_disk_must_rise_in_a_new_process() -> None:
    unmoved = exchange(reused=999, waited_s=0.1, counters=Counters(reused_tokens=999, ssd_loaded_entries=0))
    assert judged(unmoved).outcome is Outcome.FAIL
    bytes_only = replace(unmoved, counters=Counters(reused_tokens=999, ssd_read_bytes=4096))
    assert judged(bytes_only).figures["ssd_read_bytes"] == 4096
    assert judged(bytes_only).outcome is Outcome.PASS
    unreported = exchange(reused=999, waited_s=0.1, counters=Counters(reused_tokens=999))
    assert judged(unreported).outcome is Outcome.PASS


def test_counters_that_go_on_show_no_new_process() -> None:
    silent = exchange(reused=999, waited_s=0.1, counters=Counters(reused_tokens=999))
    assert judged(silent, replace(NEW, replaced=False)).outcome is Outcome.INCONCLUSIVE
    assert judged(WARM, replace(NEW, replaced=False)).outcome is Outcome.PASS
    unseen = judged(silent, replace(NEW, replaced=None))
    assert unseen.outcome is Outcome.PASS
    assert "shows in no counter" in unseen.reason


def test_an_answer_that_cannot_be_compared_is_no_pass() -> None:
    assert judged(answer=OPEN).outcome is Outcome.INCONCLUSIVE


@pytest.mark.parametrize("failure", FAILURES)
def test_a_failed_request_is_a_verdict(failure: Failure) -> None:
    for verdict in (judged(failed(failure)), judged(before=failed(failure))):
        refused = failure.kind == "refused"
        assert verdict.outcome is (Outcome.INCONCLUSIVE if refused else Outcome.FAIL)
        assert failure.detail in verdict.reason


@pytest.mark.parametrize(
    ("answer", "outcome"), [(SAME, Outcome.PASS), (OTHER, Outcome.FAIL), (OPEN, Outcome.INCONCLUSIVE)]
)
def test_only_the_answer_counts_for_what_was_being_written(answer: Sameness, outcome: Outcome) -> None:
    after = exchange(reused=0)
    back = Return(TIERS[0], exchange(), after, reuse_of(after, CALIBRATION), answer)
    verdict = survival.answer_verdict("crash", back, Loss("SIGKILL at once", True, True), "while writing")
    assert (verdict.outcome, verdict.part) == (outcome, "while writing")


@pytest.mark.parametrize(
    ("right", "outcome"),
    [(True, Outcome.PASS), (False, Outcome.INCONCLUSIVE), (None, Outcome.INCONCLUSIVE)],
)
def test_an_interrupted_prompt_without_a_cold_answer_is_judged_by_facts(
    right: bool | None, outcome: Outcome
) -> None:
    verdict = survival.interrupted_verdict(
        "crash", TIERS[0], exchange(reused=None), cold=None, answer=by_facts(right), part="while reading"
    )
    assert verdict.outcome is outcome
    assert "does not say what it reused" in verdict.reason


def test_what_a_server_states_of_a_disk() -> None:
    stated = survival.keeps_on_disk
    assert stated({"ssd_cache": "8 GiB"}, None) is True
    assert stated({"ssd_cache": "off"}, Counters(ssd_loaded_entries=4)) is False
    assert stated({"cache_ram": "8192"}, None) is None
    assert stated({}, Counters(ssd_loaded_entries=0)) is None
    assert stated({}, Counters(ssd_loaded_entries=2)) is True
