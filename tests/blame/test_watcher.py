"""What passed is recorded, judged and shown, whatever it is."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from headstart.blame.exchange import Dialect, Exchange
from headstart.blame.proxy.passing import Passing
from headstart.blame.proxy.wire import Head
from headstart.blame.purpose import Purpose
from headstart.blame.recording import Recorder, Recording
from headstart.blame.verdict import Judge, TurnVerdict, judge, totals
from headstart.blame.watcher import Sums, Watcher
from tests.blame.corpus.front import billing_each_turn


def said(*texts: str) -> dict[str, Any]:
    roles = ("user", "assistant")
    return {"messages": [{"role": roles[n % 2], "content": text} for n, text in enumerate(texts)]}


def passed(body: bytes, reply: bytes, path: str = "/v1/chat/completions") -> Passing:
    head = Head(b"1.1", (), True, method=b"POST", target=path.encode())
    one = Passing(head, path, "", Dialect.OPENAI_CHAT, finished=True)
    one.sent(body)
    one.reply_head = Head(b"1.1", ((b"Content-Type", b"application/json"),), True, status=200)
    one.came(reply)
    return one


REPLY = json.dumps({"choices": [{"message": {"content": "Hi"}, "finish_reason": "stop"}]}).encode()


def test_what_passed_is_recorded_judged_and_shown_whatever_happens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown: list[TurnVerdict] = []
    troubles: list[str] = []
    judged = Judge.add

    def faulty(self: Judge, exchange: Exchange) -> TurnVerdict:
        verdict = judged(self, exchange)
        if exchange.number == 2:
            raise RuntimeError("a fault in the analysis")
        return verdict

    monkeypatch.setattr(Judge, "add", faulty)
    path = tmp_path / "r"
    watcher = Watcher(Judge(), shown.append, troubles.append, Recorder(path, "u"))
    for texts in (["go"], ["go", "Hi", "on"], ["go", "Hi", "on", "Hi", "end"]):
        watcher.take(passed(json.dumps(said(*texts)).encode(), REPLY))
    watcher.close()
    assert [(one.conversation, one.turn.number) for one in shown] == [("A", 1), ("A", 3)]
    assert len(troubles) == 1
    assert "exchange 2 could not be taken in" in troubles[0]
    assert "a fault in the analysis" in troubles[0]
    assert [one.number for one in Recording(path)] == [1, 2, 3]


@pytest.mark.parametrize(
    "body", [b"", b"no JSON", b"[1]", b'{"messages": [[3]]}', b"\xff\xfe", b'{"messages": 3}']
)
def test_what_is_no_request_is_shown_too(body: bytes) -> None:
    shown: list[TurnVerdict] = []
    troubles: list[str] = []
    Watcher(Judge(), shown.append, troubles.append).take(passed(body, b"<html>"))
    assert (len(shown), troubles) == (1, [])


def test_a_token_count_is_known_as_one() -> None:
    shown: list[TurnVerdict] = []
    one = passed(json.dumps(said("go")).encode(), b'{"input_tokens": 9}', "/v1/messages/count_tokens")
    Watcher(Judge(), shown.append, lambda trouble: None).take(replace(one, dialect=Dialect.ANTHROPIC))
    assert (shown[0].turn.purpose, shown[0].turn.exchange.error) == (Purpose.COUNT, None)


def test_a_full_disk_is_said_and_the_turn_still_shown(tmp_path: Path) -> None:
    shown: list[TurnVerdict] = []
    troubles: list[str] = []
    recorder = Recorder(tmp_path / "r", "u")

    def full(exchange: Exchange) -> None:
        raise OSError(28, "No space left on device")

    recorder.write = full  # type: ignore[method-assign]
    watcher = Watcher(Judge(), shown.append, troubles.append, recorder)
    watcher.take(passed(b"{}", b"{}"))
    watcher.close()
    assert troubles == ["exchange 1 was not recorded: No space left on device"]
    assert len(shown) == 1


def test_sums_turn_by_turn_are_those_of_all_turns_at_once() -> None:
    verdicts = judge(billing_each_turn())
    sums = Sums()
    for verdict in verdicts:
        sums.add(verdict)
    told = [(one.cause, one.turns, one.tokens_lost, one.seconds_lost) for one in sums.totals()]
    assert told == [(one.cause, one.turns, one.tokens_lost, one.seconds_lost) for one in totals(verdicts)]
    assert told[0][:2] == ("ATTRIBUTION", 3)
