"""What a judge remembers while exchanges come in for weeks: enough for the turn at hand, and no more."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from headstart.blame.conversations import LIVE, Limits, Sorter
from headstart.blame.exchange import Dialect, Exchange, Reply, Timing, Usage
from headstart.blame.verdict import Judge, TurnVerdict
from tests.blame.corpus import front_cases, history_cases, server
from tests.blame.corpus.agents import play
from tests.blame.corpus.case import Case
from tests.blame.corpus.history import CHAT

CASES: list[Case] = [*front_cases.CASES, *history_cases.CASES, *server.CASES]
TINY = Limits(turns=2, conversations=3, text_bytes=1 << 20)
# These say how regular something was over all turns, or how often.
OF_MANY_TURNS = {"SERVER_GAP", "SERVER_NEVER_HITS", "SYSTEM_VARIANT"}


def live(case: Case, limits: Limits) -> list[TurnVerdict]:
    judge = Judge(limits=limits)
    return [judge.add(exchange) for exchange in case.sent()]


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.cause}: {case.name}")
def test_the_turn_at_hand_is_judged_the_same_with_little_memory(case: Case) -> None:
    pairs = zip(live(case, LIVE), live(case, TINY), strict=True)
    for one, other in pairs:
        assert (one.conversation, one.turn.number) == (other.conversation, other.turn.number)
        assert (one.tokens_lost, one.change and one.change.char) == (
            other.tokens_lost,
            other.change and other.change.char,
        )
        causes = {verdict.finding.cause for verdict in (one, other) if verdict.finding}
        if not causes & OF_MANY_TURNS:
            assert one.finding == other.finding


def small(number: int, first: str, *texts: str) -> Exchange:
    roles = ("user", "assistant")
    said = [{"role": roles[place % 2], "content": text} for place, text in enumerate((first, *texts))]
    usage = Usage(200 + number % 7, 150, 5)
    body: dict[str, Any] = {"model": "m", "messages": said, "prompt_cache_key": f"key {number}"}
    path = "/v1/chat/completions"
    reply = Reply(f"reply {number}, which is long enough to be a summary of something")
    return Exchange(number, 0.0, Dialect.OPENAI_CHAT, path, body, reply, usage, Timing(0.1), 200)


def many_conversations(number: int) -> Exchange:
    return small(number, f"{number} " * 20)


def one_long_conversation(number: int) -> Exchange:
    later = [f"message {place} of many" for place in range(number, number + 10)]
    return small(number, "the first message of a very long conversation", *later)


def side_requests(number: int) -> Exchange:
    if number == 1:
        return small(number, "the first message")
    return replace(small(number, "the first message"), path="/v1/messages/count_tokens")


@pytest.mark.parametrize("make", [many_conversations, one_long_conversation, side_requests])
def test_five_thousand_exchanges_leave_no_more_behind_than_a_few(make: Callable[[int], Exchange]) -> None:
    judge = Judge(limits=TINY)
    sent: list[weakref.ref[Exchange]] = []
    for number in range(1, 5001):
        exchange = make(number)
        sent.append(weakref.ref(exchange))
        judge.add(exchange)
    del exchange
    gc.collect()
    assert sum(one() is not None for one in sent) <= (TINY.turns + 1) * TINY.conversations
    sorter = judge._sorter
    assert len(sorter._all) <= 512
    assert len(sorter._stray) == 0
    assert len(judge._reads) <= 200
    for thread in sorter._open:
        assert max(map(len, (thread.turns, thread.heads, thread.places, thread.sizes))) <= TINY.turns + 1
        assert len(thread.side) == 0
        assert len(thread.seen) <= 20_000
        assert max(len(thread.sessions), len(thread.summaries)) <= 32


def test_texts_are_kept_up_to_a_number_of_bytes() -> None:
    limits = Limits(turns=16, conversations=200, text_bytes=100_000)
    sorter = Sorter(limits)
    for number in range(1, 40):
        sorter.add(small(number, f"{number} " * 5_000))
        assert sum(sum(thread.sizes) for thread in sorter._open) <= 100_000
    assert 5 <= len(sorter._open) <= 12
    for number in range(1, 40):
        sorter.add(small(number, "x" * 20_000, *["y" * 100] * number))
    [*_, last] = sorter._open
    assert last.count == 39
    assert sum(sum(thread.sizes) for thread in sorter._open) <= 100_000


def test_a_prompt_larger_than_all_that_may_be_kept_is_kept_until_the_next() -> None:
    judge = Judge(limits=Limits(turns=16, conversations=200, text_bytes=1000))
    sent = play(CHAT, requests=4)
    assert [judge.add(one).turn.number for one in sent] == [1, 2, 3, 4]


def test_the_speed_is_that_of_the_last_reads() -> None:
    judge = Judge()
    for number in range(1, 500):
        seconds = 100.0 if number < 290 else 0.5
        judge.add(replace(many_conversations(number), usage=Usage(200, 100), timing=Timing(seconds)))
    changed = small(501, "the first message of a very long conversation", "one", "two")
    judge.add(replace(changed, usage=Usage(200, 100), timing=Timing(0.5)))
    again = small(502, "the first message of a very long conversation", "another", "two")
    verdict = judge.add(replace(again, usage=Usage(200, 50), timing=Timing(0.5)))
    assert verdict.tokens_lost
    assert verdict.seconds_lost == pytest.approx(verdict.tokens_lost / 200)


def test_what_the_server_did_in_between_is_remembered_without_its_prompt() -> None:
    sorter = Sorter(LIVE)
    sorter.add(small(1, "the first message of one"))
    other = small(2, "something else entirely, and more")
    other.body["options"] = {"num_ctx": 512}
    sorter.add(other)
    _, turn = sorter.add(small(3, "the first message of one", "a", "b"))
    [between] = turn.between
    assert (between.number, between.usage) == (2, other.usage)
    assert between.body == {"model": "m", "options": {"num_ctx": 512}, "prompt_cache_key": "key 2"}
