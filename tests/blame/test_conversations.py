"""Exchanges sorted into conversations and side requests."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

from headstart.blame.conversations import Sorter, turns
from headstart.blame.exchange import Dialect, Exchange, Reply
from headstart.blame.purpose import Purpose
from headstart.blame.verdict import judge
from tests.blame.corpus.agents import Parts, Said, User, play
from tests.blame.corpus.clean import failed_once, gone_back, title_first, two_sessions, unread
from tests.blame.corpus.history import CHAT, CLAUDE, ITEMS
from tests.blame.corpus.server import two_conversations

SUMMARY = "The stop counted one parcel too many; that line is gone and a test is still missing."


def sorted_as(sent: list[Exchange]) -> dict[str, list[int]]:
    return {one.name: [turn.exchange.number for turn in one.turns] for one in turns(sent)}


def side(sent: list[Exchange]) -> dict[int, Purpose]:
    return {turn.exchange.number: turn.purpose for one in turns(sent) for turn in one.side}


def asked(sent: list[Exchange], text: str, reply: str = "", **fields: Any) -> Exchange:
    """A request of its own, put behind a session: its last one with one user message more."""
    body = copy.deepcopy(sent[-1].body)
    body["messages"].append({"role": "user", "content": text})
    body |= fields
    for name in [name for name, value in body.items() if value is None]:
        del body[name]
    return replace(sent[-1], number=len(sent) + 1, body=body, reply=Reply(reply))


def test_a_session_is_one_conversation() -> None:
    for dialect in (CHAT, CLAUDE, ITEMS, Dialect.OLLAMA_CHAT):
        (one,) = turns(play(dialect))
        assert [turn.number for turn in one.turns] == [1, 2, 3, 4, 5, 6]
        assert [turn.before and turn.before.number for turn in one.turns] == [None, 1, 2, 3, 4, 5]


def test_sessions_by_turns_are_told_apart() -> None:
    assert sorted_as(two_sessions()) == {"A": [1, 3], "B": [2, 4]}
    assert sorted_as(two_conversations()) == {"A": [1, 2, 4], "B": [3, 5]}


def test_what_the_server_did_in_between_is_known() -> None:
    (one, _) = turns(two_conversations())
    assert [[other.number for other in turn.between] for turn in one.turns] == [[], [], [3]]


def test_a_title_belongs_to_no_conversation() -> None:
    assert side(title_first()) == {1: Purpose.TITLE}
    assert sorted_as(title_first()) == {"A": [2, 3, 4, 5, 6, 7], "": []}


def test_a_token_count_is_no_turn() -> None:
    sent = play(CLAUDE, requests=2)
    count = replace(sent[1], number=3, path="/v1/messages/count_tokens?beta=true")
    assert side([*sent, count]) == {3: Purpose.COUNT}


def test_a_compaction_and_what_comes_of_it_belong_to_the_conversation() -> None:
    sent = play(CHAT, requests=5)
    words = "Write a hand-off summary of this conversation for another helper that takes over."
    compaction = asked(sent, words, SUMMARY, tools=None)
    after = copy.deepcopy(sent[0].body)
    after["messages"][1:] = [
        {"role": "user", "content": "What did we do so far?"},
        {"role": "assistant", "content": SUMMARY},
        {"role": "user", "content": "Continue if there is something left to do."},
    ]
    told = [*sent, compaction, replace(sent[0], number=7, body=after)]
    assert side(told) == {6: Purpose.COMPACTION}
    assert sorted_as(told) == {"A": [1, 2, 3, 4, 5, 7]}


def test_a_user_may_ask_for_a_summary() -> None:
    sent = play(CHAT, requests=5)
    assert side([*sent, asked(sent, "Please summarise this session in one line.")]) == {}


def test_a_topic_check_is_a_side_request() -> None:
    sent = play(CLAUDE, requests=2)
    body = {
        "model": "small",
        "system": "Say whether this message starts a new topic; answer in JSON.",
        "messages": [{"role": "user", "content": "Now the scales, please."}],
    }
    assert side([*sent, replace(sent[0], number=3, body=body)]) == {3: Purpose.TOPIC}


def test_another_first_prompt_is_another_conversation_though_the_rest_is_alike() -> None:
    """Clients put the same blocks before every first prompt."""
    one = play(CLAUDE, requests=2)
    for exchange in one:
        exchange.body["messages"][0]["content"].insert(
            0, {"type": "text", "text": "# Environment\nlinux, bash"}
        )
    other = copy.deepcopy(one[0].body)
    other["messages"][0]["content"][1]["text"] = "Weigh the letters."
    (first, second) = turns([*one, replace(one[0], number=3, body=other)])
    assert [turn.exchange.number for turn in second.turns] == [3]
    assert second.turns[0].before is first.turns[0]


def test_going_back_stays_in_the_conversation() -> None:
    assert sorted_as(gone_back()) == {"A": [1, 2, 3, 4, 5]}


def test_a_request_that_failed_is_nobodys_turn_before() -> None:
    (one,) = turns(failed_once())
    assert [turn.before and turn.before.exchange.number for turn in one.turns] == [None, 1, 2, 2, 4, 5, 6]


def test_bodies_that_cannot_be_read_are_kept_apart() -> None:
    found = turns(unread())
    assert [turn.exchange.number for turn in found[-1].side] == [3, 4, 5]
    assert all(turn.prompt is None for turn in found[-1].side)


def test_raw_prompts_that_grow_are_one_conversation() -> None:
    texts = [
        "Rules:\nbe brief\nUser: one\n",
        "Rules:\nbe brief\nUser: one\nBot: two\nUser: three\n",
        "Something else.",
    ]
    sent = [
        Exchange(index + 1, 0.0, Dialect.OPENAI_COMPLETIONS, "/v1/completions", {"prompt": text})
        for index, text in enumerate(texts)
    ]
    assert sorted_as(sent) == {"A": [1, 2], "B": [3]}


def test_exchanges_may_come_one_by_one() -> None:
    sorter = Sorter()
    names = [sorter.add(exchange)[0] for exchange in two_sessions()]
    assert names == ["A", "B", "A", "B"]


def test_names_go_on_after_z() -> None:
    steps = [
        [User(f"{word * 30} {index}"), Said("x")] for index, word in enumerate("abcdefghijklmnopqrstuvwxyzäö")
    ]
    sent = [
        replace(play(CHAT, parts=Parts(steps=list(pair), system=[], tools=[]))[0], number=index + 1)
        for index, pair in enumerate(steps)
    ]
    assert [one.name for one in turns(sent)][24:] == ["Y", "Z", "AA", "AB"]


def test_a_session_played_again_with_another_front_goes_on_with_its_own_turns() -> None:
    """The second run has its tools in another order: that is said once, at its first request."""
    one = play(Dialect.OPENAI_CHAT, requests=5)
    other = play(Dialect.OPENAI_CHAT, {1: lambda parts: parts.tools.reverse()}, requests=5)
    other = [replace(exchange, number=exchange.number + 5) for exchange in other]
    befores = {turn.exchange.number: turn.before for turn in turns([*one, *other])[0].turns}
    assert [befores[number] and befores[number].exchange.number for number in (7, 8, 9, 10)] == [6, 7, 8, 9]
    found = [verdict.finding and verdict.finding.cause for verdict in judge([*one, *other])]
    assert found[6:] == [None] * 4
