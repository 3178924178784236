"""What a verdict counts, and which of two causes it names."""

from __future__ import annotations

import copy
import itertools
import random
import time
from dataclasses import replace
from typing import Any

import pytest

from headstart.blame.causes.context import Context
from headstart.blame.exchange import Dialect, Exchange, Reply, Timing, Usage
from headstart.blame.finding import Culprit, Finding, Step
from headstart.blame.verdict import Judge, TurnVerdict, judge, reading_speed, totals
from tests.blame.corpus import front_cases, history, history_cases, server
from tests.blame.corpus.agents import SYSTEM, TOKENS_PER_SECOND, measured, play, silent
from tests.blame.corpus.front import billing_each_turn, set_system
from tests.blame.corpus.history import CHAT, CLAUDE, never_thought


def at(verdicts: list[TurnVerdict], number: int) -> TurnVerdict:
    return next(verdict for verdict in verdicts if verdict.turn.exchange.number == number)


def finding(verdicts: list[TurnVerdict], number: int) -> Finding:
    found = at(verdicts, number).finding
    assert found is not None
    return found


def changed_front() -> list[Exchange]:
    return play(CHAT, {4: set_system(SYSTEM.replace("plain words", "short words", 1))})


def test_tokens_lost_are_those_that_were_there_before() -> None:
    sent = changed_front()
    then, now = sent[2].usage, sent[3].usage
    assert then.prompt and now.prompt and now.cached is not None
    lost = finding(judge(sent), 4).tokens_lost
    assert lost is not None
    new = now.prompt - then.prompt - (then.completion or 0)
    assert lost == now.prompt - now.cached - new
    assert 0.6 * now.prompt < lost < now.prompt


def test_seconds_are_counted_at_the_servers_own_speed() -> None:
    sent = [
        replace(one, timing=Timing(prefill=(one.usage.read or 0) / TOKENS_PER_SECOND))
        for one in changed_front()
    ]
    assert reading_speed(sent) == pytest.approx(TOKENS_PER_SECOND)
    found = finding(judge(sent), 4)
    assert found.seconds_lost == pytest.approx((found.tokens_lost or 0) / TOKENS_PER_SECOND)


def test_what_is_not_told_is_not_counted() -> None:
    found = finding(judge(silent(changed_front())), 4)
    assert (found.cause, found.tokens_lost, found.seconds_lost) == ("UNKNOWN", None, None)


def test_totals_are_dearest_first() -> None:
    one = changed_front()
    other = [replace(exchange, number=exchange.number + 10) for exchange in billing_each_turn()]
    sums = totals(judge([*one, *other]))
    assert [(total.cause, total.turns) for total in sums] == [("ATTRIBUTION", 3), ("UNKNOWN", 1)]
    assert (sums[0].seconds_lost or 0) > (sums[1].seconds_lost or 0)
    assert sums[0].tokens_lost == sum(
        verdict.tokens_lost or 0 for verdict in judge(other) if verdict.finding is not None
    )


def test_both_sides_of_the_place_are_shown() -> None:
    found = finding(judge(billing_each_turn()), 2)
    assert "cch=36ee5" in found.before
    assert "cch=36ea1" in found.after
    assert found.fix.command == "CLAUDE_CODE_ATTRIBUTION_HEADER=0"
    assert (found.culprit, found.step) == (Culprit.CLIENT, Step.BODY)


@pytest.mark.parametrize(
    ("case", "step", "culprit"),
    [
        ("thinking never sent back", Step.GENERATED, Culprit.CLIENT),
        ("thinking left out later", Step.BODY, Culprit.CLIENT),
        ("blocks of 2,048", Step.SERVER, Culprit.SERVER),
        ("system message rendered first", Step.RENDERED, Culprit.TEMPLATE),
        ("loaded anew", Step.SERVER, Culprit.SERVER),
    ],
)
def test_the_step_and_the_culprit(case: str, step: Step, culprit: Culprit) -> None:
    told = next(one for one in (*front_cases.CASES, *history_cases.CASES, *server.CASES) if one.name == case)
    found = finding(judge(told.sent()), told.number)
    assert (found.step, found.culprit) == (step, culprit)


def test_a_reload_outweighs_a_late_change_and_names_both() -> None:
    """The last message before changed, but the server reused nothing at all."""
    sent = play(CHAT, {5: history.edited(7, history.text(lambda old: old + " and 2 more"))})
    sent = [replace(one, timing=replace(one.timing, load=9.0 if one.number == 5 else 0.0)) for one in sent]
    assert finding(judge(sent), 5).cause == "HISTORY_REWRITTEN"
    sent[4] = replace(sent[4], usage=replace(sent[4].usage, cached=0))
    verdict = at(judge(sent), 5)
    assert verdict.finding is not None
    assert verdict.finding.cause == "CONTEXT_RELOADED"
    assert [found.cause for found in verdict.also] == ["HISTORY_REWRITTEN"]


def test_the_rendered_prompt_is_asked_before_the_server_is_blamed() -> None:
    asked: list[int] = []

    class Asked:
        def inspect(self, context: Context) -> Finding | None:
            asked.append(context.exchange.number)
            return Finding("TEMPLATE_SUFFIX", Culprit.TEMPLATE, Step.RENDERED, "an empty block")

        def same(self, context: Context) -> bool:
            return False

        def place(self, context: Context, finding: Finding) -> Finding:
            return finding

    verdicts = judge(server.resuming_at(2048, 0), Asked())
    assert finding(verdicts, 5).cause == "TEMPLATE_SUFFIX"
    assert asked == [2, 3, 4, 5, 6]


def test_a_user_who_asks_anew_changed_no_history() -> None:
    sent = play(CHAT, requests=5)
    body = copy.deepcopy(sent[4].body)
    body["messages"][-1]["content"] = "Rather write a page about it for the people at the belt."
    again = measured([*sent, replace(sent[4], number=6, body=body)])
    assert at(judge(again), 6).finding is None


def test_thinking_that_was_never_sent_back_costs_no_word_where_nothing_was_lost() -> None:
    sent = never_thought(True)
    kept = [
        replace(one, usage=replace(one.usage, cached=(one.usage.prompt or 0) - 4)) if one.number > 1 else one
        for one in sent
    ]
    assert [verdict.finding for verdict in judge(kept)] == [None] * 6


def test_a_front_that_two_conversations_could_share() -> None:
    """Each is one question; only the clock keeps them from sharing the system prompt."""
    questions = ["Is the lamp on in the hall?", "Turn the heating down.", "What is on the list for Friday?"]
    sent = []
    for index, question in enumerate(questions):
        system = f"You run a house. Time: 14:3{index}:00\n" + SYSTEM
        messages = [{"role": "system", "content": system}, {"role": "user", "content": question}]
        sent.append(Exchange(index + 1, 0.0, CHAT, "/v1/chat/completions", {"messages": messages}))
    verdicts = judge(measured(sent))
    assert [verdict.conversation for verdict in verdicts] == ["A", "B", "C"]
    assert [verdict.finding and verdict.finding.cause for verdict in verdicts] == [
        None,
        "TIMESTAMP",
        "TIMESTAMP",
    ]


def test_a_conversation_of_another_agent_is_not_blamed_for_its_front() -> None:
    one, other = play(CHAT, requests=1), play(CLAUDE, requests=1)
    other[0].body["system"] = "You sort letters."
    other[0].body["messages"][0]["content"] = "Begin with the red ones."
    assert [verdict.finding for verdict in judge([*one, replace(other[0], number=2)])] == [None, None]


def broken(source: random.Random, value: Any) -> Any:
    """A body with a value somewhere replaced by something strange."""
    strange = [None, 0, "", [], {}, "x", [None], {"type": "text"}, True, [["a"]]]
    if isinstance(value, dict) and value and source.random() < 0.85:
        name = source.choice(list(value))
        return value | {name: broken(source, value[name])}
    if isinstance(value, list) and value and source.random() < 0.85:
        place = source.randrange(len(value))
        return [*value[:place], broken(source, value[place]), *value[place + 1 :]]
    return source.choice(strange)


@pytest.mark.parametrize("dialect", [CHAT, CLAUDE, Dialect.OPENAI_RESPONSES, Dialect.OLLAMA_CHAT])
def test_strange_bodies_and_counts_give_verdicts_and_no_traceback(dialect: Dialect) -> None:
    source = random.Random(7)
    for _ in range(60):
        sent = []
        for one in play(dialect, requests=4):
            body = broken(source, one.body) if source.random() < 0.5 else one.body
            usage = Usage(*(source.choice([None, 0, 5, 10**9]) for _ in range(3)))
            sent.append(replace(one, body=body, usage=usage, timing=Timing(source.choice([None, 0.0, 1.5]))))
        assert len(judge(sent)) == 4


def test_an_empty_recording() -> None:
    assert judge([]) == []
    assert totals([]) == []
    assert reading_speed([]) is None


def test_a_long_session_of_200_000_tokens_is_judged_quickly() -> None:
    text = "word and word again, " * 38_000
    messages = [{"role": "system", "content": "s"}, {"role": "user", "content": text}]
    sent = []
    for number in range(1, 13):
        body = {"messages": copy.deepcopy(messages)}
        sent.append(Exchange(number, 0.0, CHAT, "/v1/chat/completions", body, Reply(f"answer {number}")))
        messages += [
            {"role": "assistant", "content": f"answer {number}"},
            {"role": "user", "content": "go on"},
        ]
    sent[11].body["messages"][1]["content"] = text[:500_000] + "X" + text[500_001:]
    started = time.perf_counter()
    verdicts = judge(sent)
    assert time.perf_counter() - started < 3
    found = finding(verdicts, 12)
    assert (found.cause, found.char) == ("HISTORY_REWRITTEN", 500_001)


def test_a_judge_says_the_same_while_exchanges_come_in() -> None:
    for case in front_cases.CASES:
        sent = case.sent()
        judge_now = Judge()
        live = [judge_now.add(exchange) for exchange in sent]
        assert [(one.conversation, one.finding and one.finding.cause) for one in live] == [
            (one.conversation, one.finding and one.finding.cause) for one in judge(sent)
        ]


def test_a_server_that_never_hits_is_known_by_its_second_turn() -> None:
    case = next(one for one in server.CASES if one.cause == "SERVER_NEVER_HITS")
    judge_now = Judge()
    live = [judge_now.add(exchange).finding for exchange in case.sent()]
    assert [one and one.cause for one in live] == [None, "SERVER_GAP", *["SERVER_NEVER_HITS"] * 4]


def test_any_letter_changed_in_any_message_is_found_at_its_place() -> None:
    source = random.Random(11)
    for _ in range(80):
        sent = play(CHAT, requests=5)
        messages = sent[4].body["messages"]
        index = source.choice([index for index in range(9) if messages[index]["content"]])
        text = messages[index]["content"]
        place = source.randrange(len(text))
        letter = "Q" if text[place] != "Q" else "Z"
        messages[index]["content"] = text[:place] + letter + text[place + 1 :]
        verdict = at(judge(measured(sent)), 5)
        found = verdict.finding
        assert found is not None
        assert verdict.change is not None
        assert (found.path, verdict.change.char) == (f"messages[{index}].content", place)
        assert verdict.turn.prompt is not None
        whole = "".join(piece.text for piece in verdict.turn.prompt.pieces)
        assert found.char is not None
        assert whole[found.char] == letter


def test_a_change_that_cost_nothing_costs_no_word() -> None:
    """As where a server leaves the billing line out of the prompt: what changed was never read."""
    sent = billing_each_turn()
    kept = sent[:1]
    for before, one in itertools.pairwise(sent):
        held = (before.usage.prompt or 0) + (before.usage.completion or 0) - 1
        kept.append(replace(one, usage=replace(one.usage, cached=held)))
    assert [verdict.finding and verdict.finding.cause for verdict in judge(sent)][1] == "ATTRIBUTION"
    assert [verdict.finding for verdict in judge(kept)] == [None] * len(sent)
