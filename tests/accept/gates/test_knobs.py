"""Options: what their effects are, and what a verdict makes of them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from headstart.accept.exchange import Ask, Counters, FailureKind, Score
from headstart.accept.gates import knob_effects
from headstart.accept.gates.knob_effects import Effect
from headstart.accept.gates.knobs import verdict
from headstart.accept.verdict import Outcome
from tests.accept.gates.made_up import BROKEN_KINDS, exchange, failed

PLAIN = exchange("plain", text="The harbour lay still in the morning", completion_tokens=24)


def test_honoured_named_and_refused_pass_and_silence_fails() -> None:
    named = exchange(warnings=("seed: this field is not supported and was ignored",))
    refused = failed(FailureKind.REFUSED, "unknown field seed", status=400)
    nothing = Effect(False, "two replies differ")

    assert verdict("seed", [exchange()], [], Effect(True, "equal")).outcome is Outcome.PASS
    assert verdict("seed", [named], [], nothing).figures["how"] == "named"
    assert verdict("seed", [refused], [], nothing).figures["how"] == "refused"
    silent = verdict("seed", [exchange()], [PLAIN], nothing)
    assert silent.outcome is Outcome.FAIL
    assert "ignored in silence" in silent.reason and silent.part == "seed"
    assert silent.cases == ["c", "plain"]


def test_a_warning_about_another_option_names_nothing() -> None:
    other = exchange(warnings=("stop: ignored",))

    assert verdict("seed", [other], [], Effect(False, "differ")).outcome is Outcome.FAIL


def test_what_cannot_be_seen_is_not_passed_unless_it_is_named() -> None:
    unseen = Effect(None, "cannot be seen from outside")
    named = exchange(warnings=("num_batch is ignored",))

    assert verdict("num_batch", [exchange()], [], unseen).outcome is Outcome.INCONCLUSIVE
    assert verdict("num_batch", [named], [], unseen).outcome is Outcome.PASS


@pytest.mark.parametrize("kind", BROKEN_KINDS)
def test_a_server_that_breaks_on_an_option_fails(kind: FailureKind) -> None:
    assert verdict("seed", [failed(kind)], [], Effect(True, "")).outcome is Outcome.FAIL


def test_a_refused_plain_request_is_no_refusal_of_the_option() -> None:
    plain = failed(FailureKind.REFUSED, "no", status=401)

    assert verdict("seed", [exchange()], [plain], Effect(True, "")).outcome is Outcome.INCONCLUSIVE


def test_max_tokens() -> None:
    assert knob_effects.limit(exchange(completion_tokens=3), PLAIN, 3).seen is True
    assert knob_effects.limit(exchange(completion_tokens=24), PLAIN, 3).seen is False
    ends = exchange(completion_tokens=2)
    assert knob_effects.limit(ends, exchange(completion_tokens=2), 3).seen is None


def test_max_tokens_without_counts_goes_by_scores_or_text() -> None:
    unknown = {"completion_tokens": None}
    scores = (Score("a", -0.1),) * 5
    assert knob_effects.limit(exchange(scores=scores, **unknown), PLAIN, 3).seen is False
    long = exchange(text="a b c d e f g", **unknown)
    assert knob_effects.limit(exchange(text="a b", **unknown), long, 3).seen is True
    assert knob_effects.limit(long, long, 3).seen is False
    assert knob_effects.limit(long, exchange(text="", **unknown), 3).seen is None


def test_a_piece_to_stop_at_is_found_once_and_late() -> None:
    assert knob_effects.stop_text("The harbour lay still in the harbour") == "lay"
    assert knob_effects.stop_text("x") is None
    assert knob_effects.stop_text("a§b@c§d +++ ++++") == "+++"
    assert knob_effects.stop_text("") is None


def test_stop() -> None:
    assert knob_effects.stopped(exchange(text="The harbour lay "), PLAIN, "still").seen is True
    assert knob_effects.stopped(PLAIN, PLAIN, "still").seen is False
    assert knob_effects.stopped(exchange(text="Else"), PLAIN, "still").seen is None


@pytest.mark.parametrize(
    ("texts", "seen"),
    [
        (("a", "a", "b", "b", "c"), True),
        (("a", "a", "b", "b", "a"), True),
        (("a", "b", "c", "d", "e"), False),
        (("a", "a", "a", "a", "a"), None),
        (("a", "a", "b", "c", "d"), None),
        (("a", "b", "c", "c", "d"), None),
    ],
)
def test_seed(texts: tuple[str, ...], seen: bool | None) -> None:
    made = [exchange(text=text, ask=Ask(prompt="x", seed=number // 2)) for number, text in enumerate(texts)]

    assert knob_effects.seeded(made[:2], made[2:4], made[4]).seen is seen


def test_logprobs() -> None:
    assert knob_effects.scored(exchange(scores=(Score("a", -1.0),))).seen is True
    assert knob_effects.scored(exchange()).seen is False
    assert knob_effects.scored(exchange(text="")).seen is None
    scores = (Score("a", -1.0),)
    assert "in one piece" in knob_effects.scored(exchange(), exchange(scores=scores)).detail


def test_cache_off() -> None:
    warm = exchange(reused=900)
    assert knob_effects.uncached(exchange(reused=0), warm).seen is True
    assert knob_effects.uncached(exchange(reused=900), warm).seen is False
    assert knob_effects.uncached(exchange(reused=0), exchange(reused=0)).seen is None
    assert knob_effects.uncached(exchange(reused=None), warm).seen is None
    counted = exchange(reused=None, counters=Counters(reused_tokens=0))
    assert knob_effects.uncached(counted, warm).seen is True


def test_num_ctx_by_what_ollama_lists() -> None:
    listed = [{"name": "q", "model": "q", "context_length": 2048}]
    assert knob_effects.context(listed, "q", 2048).seen is True
    assert knob_effects.context(listed, "q", 8192).seen is False
    assert knob_effects.context([{"name": "q"}], "q", 2048).seen is None
    assert knob_effects.context(None, "q", 2048).seen is None
    assert knob_effects.context([*listed, {"name": "r"}], "z", 2048).seen is None


def test_keep_alive_by_what_ollama_lists() -> None:
    now = datetime(2026, 9, 4, 14, 0, tzinfo=UTC)
    listed = [{"name": "q", "expires_at": (now + timedelta(minutes=7)).isoformat()}]
    assert knob_effects.kept(listed, "q", (now + timedelta(minutes=7)).timestamp()).seen is True
    assert knob_effects.kept(listed, "q", now.timestamp()).seen is False
    assert knob_effects.kept([{"name": "q"}], "q", now.timestamp()).seen is None
