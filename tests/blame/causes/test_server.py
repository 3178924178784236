"""What a server is to be blamed for, and what not."""

from __future__ import annotations

import copy
from dataclasses import replace

from headstart.blame.exchange import Exchange, Reply, Timing, Usage
from headstart.blame.verdict import judge
from tests.blame.corpus.agents import STEPS, SYSTEM, Parts, Said, Step, User, counted, measured, play
from tests.blame.corpus.front import set_system
from tests.blame.corpus.history import CHAT, ITEMS, OLLAMA, dropped
from tests.blame.corpus.server import between


def causes(sent: list[Exchange]) -> dict[int, str]:
    return {
        verdict.turn.exchange.number: verdict.finding.cause
        for verdict in judge(sent)
        if verdict.finding is not None
    }


def with_usage(sent: list[Exchange], number: int, usage: Usage) -> list[Exchange]:
    return [replace(one, usage=usage) if one.number == number else one for one in sent]


def test_a_side_request_before_every_turn_is_to_blame_and_not_the_cache() -> None:
    sent = between(2, 3, 4, 5, 6)
    told = counted(sent, {one.number: 0 for one in sent})
    assert set(causes(told).values()) == {"SIDE_REQUEST_EVICTED"}


def test_a_side_request_is_not_to_blame_where_quiet_turns_lose_as_much() -> None:
    sent = between(4)
    told = counted(sent, {one.number: 100 + one.number for one in sent if one.number > 1})
    assert set(causes(told).values()) == {"SERVER_GAP"}


def test_fewer_tokens_after_a_template_left_thinking_out_are_no_cut() -> None:
    sent = play(CHAT)
    then = sent[4].usage
    told = with_usage(sent, 6, Usage((then.prompt or 0) - 80, (then.prompt or 0) - 90, 30))
    assert "TRUNCATED" not in causes(told).values()
    plain = [replace(step, thinking="") if isinstance(step, Said) else step for step in STEPS]
    sent = play(CHAT, parts=Parts(steps=plain))
    then = sent[4].usage
    told = with_usage(sent, 6, Usage((then.prompt or 0) - 80, (then.prompt or 0) - 90, 30))
    assert causes(told) == {6: "TRUNCATED"}


def test_an_old_server_that_counts_only_what_it_read_cut_nothing() -> None:
    sent = [
        replace(one, usage=Usage(one.usage.read if one.number > 1 else one.usage.prompt))
        for one in play(OLLAMA)
    ]
    assert causes(sent) == {}


def test_a_slow_load_that_lost_nothing_is_no_finding() -> None:
    sent = [replace(one, timing=Timing(first_token=1.0, load=2.5)) for one in play(OLLAMA)]
    assert causes(sent) == {}
    unknown = [replace(one, usage=Usage(one.usage.prompt)) for one in sent]
    assert set(causes(unknown).values()) == {"CONTEXT_RELOADED"}


def test_a_turn_taken_out_is_no_thinking_left_out() -> None:
    steps: list[Step] = [*STEPS]
    steps[3] = replace(steps[3], thinking="")  # type: ignore[type-var]
    assert causes(play(CHAT, {5: dropped(1, 2)}, parts=Parts(steps=steps))) == {5: "PRUNED_OR_COMPACTED"}


def environment(first: str) -> list[Step]:
    """A client that puts a message of its own before the user's words."""
    return [User("<environment_context>\n  shell: bash\n</environment_context>"), User(first), *STEPS[1:]]


def test_another_session_with_the_same_first_message_is_another_conversation() -> None:
    one = play(ITEMS, parts=Parts(steps=environment("Why does the belt count one too many?")), requests=3)
    other = play(ITEMS, parts=Parts(steps=environment("Weigh the letters on the desk, please.")), requests=2)
    sent = measured([*one, *(replace(exchange, number=exchange.number + 3) for exchange in other)])
    verdicts = judge(sent)
    assert [verdict.conversation for verdict in verdicts] == ["A", "A", "A", "B", "B"]
    assert causes(sent) == {}


def test_another_session_is_not_blamed_for_other_words_of_its_system_prompt() -> None:
    other = SYSTEM.replace("Ask when", "Ask me when")
    one = play(CHAT, requests=2)
    two = play(CHAT, {1: set_system(other)}, parts=Parts(steps=[User("Weigh the letters."), Said("Done.")]))
    sent = measured([*one, replace(two[0], number=3)])
    assert [verdict.conversation for verdict in judge(sent)] == ["A", "A", "B"]
    assert causes(sent) == {}


def test_counts_of_a_repeated_request_are_those_of_the_same_prompt() -> None:
    """The same request again: a server holds back a few tokens by design."""
    sent = play(CHAT, requests=2)
    again = replace(sent[1], number=3, body=copy.deepcopy(sent[1].body), reply=Reply("Again."))
    had = sent[1].usage.prompt or 0
    assert causes([*sent, replace(again, usage=Usage(had, had - 30, 3))]) == {}
    assert causes([*sent, replace(again, usage=Usage(had, 8, 3))]) == {3: "SERVER_GAP"}
