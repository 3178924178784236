"""What was reused, by whoever tells."""

from __future__ import annotations

from headstart.accept.exchange import Counters
from headstart.accept.gates.evidence import restored
from tests.accept.gates.made_up import exchange


def test_the_reply_comes_before_the_counters_and_zero_is_an_answer() -> None:
    assert restored(exchange(reused=0, counters=Counters(reused_tokens=700))) == 0
    assert restored(exchange(reused=900)) == 900


def test_counters_speak_where_the_reply_does_not() -> None:
    assert restored(exchange(reused=None, counters=Counters(reused_tokens=700))) == 700
    assert restored(exchange(reused=None, counters=Counters(read_tokens=300))) == 700
    assert restored(exchange(reused=None, counters=Counters(read_tokens=1300))) == 0


def test_nobody_says() -> None:
    assert restored(exchange(reused=None)) is None
    assert restored(exchange(reused=None, counters=Counters())) is None
    assert restored(exchange(reused=None, prompt_tokens=None, counters=Counters(read_tokens=3))) is None
