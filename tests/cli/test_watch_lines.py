"""A turn as a line, and what is said below it."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from headstart.blame.conversations import Turn
from headstart.blame.exchange import Dialect, Exchange, Timing, Usage
from headstart.blame.finding import Culprit, Finding, Fix, Step
from headstart.blame.purpose import Purpose
from headstart.blame.verdict import CauseTotal, Judge, TurnVerdict
from headstart.cli.finding_words import sums
from headstart.cli.watch_lines import HEADINGS, Lines, as_json, sums_as_json
from tests.blame.corpus.front import billing_each_turn

FOUND = Finding(
    "TIMESTAMP",
    Culprit.CLIENT,
    Step.BODY,
    "the time changed: 10:31 -> 10:32",
    path="system[0].text",
    offset=1204,
    tokens_lost=45,
    seconds_lost=1.25,
    before="It is 10:31\nnow",
    after="It is 10:32\nnow",
    fix=Fix("Take it out.", "NO_CLOCK=1", "date"),
)


def verdict(number: int = 3, found: Finding | None = FOUND, **more: Any) -> TurnVerdict:
    usage = Usage(12345, 12000)
    one = Exchange(number, 0.0, Dialect.OPENAI_CHAT, "/", None, usage=usage, timing=Timing(0.5), **more)
    turn = Turn(one, None, Purpose.TURN, number)
    return TurnVerdict("A", turn, usage, finding=found, tokens_lost=45, seconds_lost=1.25)


def test_counts_and_the_finding_below_them() -> None:
    shown = Lines().of(verdict(error="it \x1b[31mbroke", notes=("fix tools: moved",))).splitlines()
    assert shown[0].split() == ["A", "3", "12,345", "12,000", "45", "300", "0.50", "s"]
    assert len(shown[0]) == len(HEADINGS)
    assert [text.removeprefix(5 * " ") for text in shown[1:]] == [
        r"error: it \x1b[31mbroke",
        "fix tools: moved",
        "TIMESTAMP (client): the time changed: 10:31 -> 10:32",
        "at system[0].text, character 1,204: 45 tokens, 1.2 s read again",
        r"before: It is 10:31\nnow",
        r"now:    It is 10:32\nnow",
        "                  ^",
        "fix: Take it out.",
        "     NO_CLOCK=1",
        "     or headstart watch --fix date, which does it on the way",
    ]


def test_the_same_again_is_one_short_line() -> None:
    lines = Lines()
    lines.of(verdict(3))
    short = "TIMESTAMP again, as in turn 3, at system[0].text, character 1,204: 45 tokens, 1.2 s read again"
    assert [text.strip() for text in lines.of(verdict(4)).splitlines()[1:]] == [short]
    assert [text.strip() for text in lines.of(verdict(9)).splitlines()[1:]] == [short]
    assert len(lines.of(replace(verdict(4), conversation="B")).splitlines()) > 5
    assert len(lines.of(verdict(5, replace(FOUND, cause="COUNTER"))).splitlines()) > 5
    elsewhere = lines.of(verdict(6, replace(FOUND, path="system[1].text")))
    assert "again, as in turn 3, at system[1].text" in elsewhere


def test_what_it_remembers_does_not_grow() -> None:
    lines = Lines()
    for number in range(3000):
        lines.of(replace(verdict(), conversation=str(number)))
    assert len(lines._told) == 1000


def test_what_is_besides_is_said_in_short() -> None:
    both = replace(verdict(), also=(replace(FOUND, cause="COUNTER", said="it counts"),))
    assert Lines().of(both).splitlines()[-1].strip() == "besides, COUNTER: it counts"


def test_side_requests_have_their_purpose_and_a_first_turn_nothing_to_read_again() -> None:
    one = Exchange(1, 0.0, Dialect.OPENAI_CHAT, "/", None)
    for name, purpose, begin in [
        ("", Purpose.TITLE, ["-", "title"]),
        ("A", Purpose.COMPACTION, ["A", "compaction"]),
        ("B", Purpose.OTHER, ["B", "side", "request"]),
    ]:
        shown = Lines().of(TurnVerdict(name, Turn(one, None, purpose), one.usage))
        assert shown.split() == [*begin, "?", "?", "-", "?"]
        assert json.loads(as_json(TurnVerdict(name, Turn(one, None, purpose), one.usage)))["turn"] is None
    first = TurnVerdict("AB", Turn(one, None, Purpose.TURN, 1), one.usage, tokens_lost=7)
    assert Lines().of(first).split() == ["AB", "1", "?", "?", "-", "?"]
    later = TurnVerdict("AB", Turn(one, None, Purpose.TURN, 2), one.usage)
    assert Lines().of(later).split() == ["AB", "2", "?", "?", "?", "?"]


def test_the_object_has_the_finding_as_an_object() -> None:
    told = json.loads(as_json(verdict()))
    assert (told["conversation"], told["turn"], told["purpose"]) == ("A", 3, "turn")
    assert (told["prompt_tokens"], told["reused_tokens"], told["read_again_tokens"]) == (12345, 12000, 45)
    assert told["finding"] == {
        "cause": "TIMESTAMP",
        "culprit": "client",
        "step": "body",
        "said": "the time changed: 10:31 -> 10:32",
        "path": "system[0].text",
        "offset": 1204,
        "char": None,
        "token": None,
        "tokens_behind": None,
        "tokens_lost": 45,
        "seconds_lost": 1.25,
        "before": "It is 10:31\nnow",
        "after": "It is 10:32\nnow",
        "fix": {"text": "Take it out.", "command": "NO_CLOCK=1", "repair": "date"},
    }
    assert json.loads(as_json(replace(verdict(found=None), also=(FOUND,))))["finding"] is None


def test_spaces_that_differ_are_seen() -> None:
    shown = Lines().of(verdict(found=replace(FOUND, before="a  b ", after="a\tb\u00a0")))
    assert "before: a  b " in shown
    assert r"now:    a\tb\xa0" in shown


def test_half_a_surrogate_pair_can_be_printed() -> None:
    odd = verdict(found=replace(FOUND, after="\ud800"))
    as_json(odd).encode()
    Lines().of(odd).encode()


def test_a_session_of_the_corpus_as_lines() -> None:
    judge, lines = Judge(), Lines()
    shown = [lines.of(judge.add(exchange)) for exchange in billing_each_turn()]
    assert "CLAUDE_CODE_ATTRIBUTION_HEADER=0" in shown[1]
    assert "watch --fix billing, which does it on the way" in shown[1]
    assert "ATTRIBUTION again, as in turn 2, at system" in shown[2]


def test_sums() -> None:
    totals = [CauseTotal("TIMESTAMP", 3, 33000, 24.55), CauseTotal("COUNTER", 1)]
    assert [text.split() for text in sums(totals)] == [
        ["lost", "by", "turns", "tokens", "seconds"],
        ["TIMESTAMP", "3", "33,000", "24.6"],
        ["COUNTER", "1", "?", "?"],
    ]
    assert json.loads(sums_as_json(totals))["totals"][0] == {
        "cause": "TIMESTAMP", "turns": 3, "tokens_lost": 33000, "seconds_lost": 24.55
    }  # fmt: skip
