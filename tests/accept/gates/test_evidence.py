"""What exchanges show, before any gate."""

from __future__ import annotations

import pytest

from headstart.accept.exchange import Ask, Counters, Failure, FailureKind
from headstart.accept.gates import evidence
from headstart.accept.gates.evidence import Kept
from headstart.accept.judge import Warmth
from headstart.accept.verdict import Outcome
from tests.accept.gates.scripted import CALIBRATION, TIERS, exchange, failed


@pytest.mark.parametrize("kind", list(FailureKind))
def test_every_failure_is_a_verdict_with_the_servers_words(kind: FailureKind) -> None:
    bad = failed(Failure(kind, "in plain words", 503), label="8k, again")
    verdict = evidence.broken("churn", [exchange(), bad], TIERS[0], "return")
    assert verdict is not None
    no_fault = kind in (FailureKind.REFUSED, FailureKind.CANCELLED)
    assert verdict.outcome is (Outcome.INCONCLUSIVE if no_fault else Outcome.FAIL)
    assert verdict.reason.endswith("to “8k, again”: in plain words")
    assert verdict.figures["failed_requests"] == 1
    assert (verdict.tier, verdict.part) == (TIERS[0].name, "return")
    assert evidence.broken("churn", [exchange()]) is None


def test_unknown_zero_and_n_are_three_things() -> None:
    unknown, zero, some = (evidence.reuse_of(exchange(reused=reused), CALIBRATION) for reused in (None, 0, 7))
    assert (unknown.tokens, zero.tokens, some.tokens) == (None, 0, 7)
    assert evidence.of_prompt(zero) == "reused 0 of 1000 tokens"
    assert evidence.of_prompt(unknown) == "read everything by the clock (10 s)"


def test_counters_count_what_was_reused_or_what_was_read() -> None:
    def counted(counters: Counters | None, prompt: int | None = 1000) -> int | None:
        one = exchange(reused=None, prompt_tokens=prompt, counters=counters)
        return evidence.reuse_of(one, CALIBRATION).counted

    assert counted(None) is None
    assert counted(Counters()) is None
    assert counted(Counters(reused_tokens=0)) == 0
    assert counted(Counters(read_tokens=100)) == 900
    assert counted(Counters(read_tokens=100), prompt=None) is None
    assert counted(Counters(reused_tokens=-500)) == 0


def test_the_clock_needs_a_stream_and_a_size() -> None:
    def clock(**fields: object) -> Warmth:
        return evidence.reuse_of(exchange(**fields), CALIBRATION).clock

    assert clock() is Warmth.COLD
    assert clock(waited_s=0.1) is Warmth.WARM
    assert clock(first_token_s=None) is Warmth.UNCLEAR
    assert clock(prompt_tokens=None) is Warmth.UNCLEAR
    assert evidence.reuse_of(exchange(prompt_tokens=None), CALIBRATION, about=1000).clock is Warmth.COLD


@pytest.mark.parametrize(
    ("reused", "allowance", "state"),
    [
        (1000, 1, Kept.ALL),
        (999, 1, Kept.ALL),
        (998, 1, Kept.PART),
        (768, 256, Kept.ALL),
        (6, 1, Kept.NONE),
        (0, 1, Kept.NONE),
    ],
)
def test_how_much_was_kept_by_tokens(reused: int, allowance: int, state: Kept) -> None:
    reuse = evidence.reuse_of(exchange(reused=reused, waited_s=0.1), CALIBRATION)
    assert evidence.kept(reuse, None, allowance, head=6) is state


def test_what_is_due_may_be_less_than_the_prompt() -> None:
    reuse = evidence.reuse_of(exchange(reused=500), CALIBRATION)
    assert evidence.kept(reuse, 500, 1) is Kept.ALL
    assert evidence.kept(reuse, 600, 1) is Kept.PART


def test_a_new_process_is_seen_by_counters_that_begin_anew() -> None:
    old, new = Counters(requests=40, prompt_tokens=9000), Counters(requests=1, prompt_tokens=200)
    assert evidence.replaced(True, None, None) is True
    assert evidence.replaced(False, old, new) is True
    assert evidence.replaced(False, old, old) is False
    assert evidence.replaced(False, old, None) is None
    assert evidence.replaced(False, Counters(), new) is None
    assert evidence.replaced(False, Counters(requests=0), Counters(requests=1)) is None


def test_a_foreign_value_is_one_of_another_text_only() -> None:
    assert evidence.names_other("22222", "11111", ["22222"])
    assert not evidence.names_other("11111", "11111", ["11111"])
    assert not evidence.names_other("33333", "11111", ["22222"])
    assert not evidence.names_other(None, "11111", ["22222"])


def test_more_fields_stay_beside_those_an_ask_has() -> None:
    ask = Ask(prompt="p", options={"thinking": False})
    assert evidence.with_options(ask, {"salt": "x"}).options == {"thinking": False, "salt": "x"}
    assert evidence.with_options(ask, {}) is ask


def test_words() -> None:
    assert [evidence.seconds(s) for s in (0.0421, 1.734, 61.2)] == ["0.042 s", "1.73 s", "61 s"]
    assert evidence.quoted("a\nb  c") == '"a b c"'
    assert evidence.quoted("x" * 50) == '"' + "x" * 40 + '…"'
