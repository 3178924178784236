"""The sessions of coding agents: the same in every dialect, and what a perfect cache would read of them."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from agent_dialects import DIALECTS, Cost, rewritten
from agent_sessions import SESSIONS, Message, Request, sessions, spoken
from agent_trace import counted, fitting, table
from headstart.engines.toy import ToyEngine
from tests.api.served import client_for, served_toy


@pytest.mark.parametrize("name", SESSIONS)
def test_every_reply_has_a_place_of_its_own(name: str) -> None:
    (asked,) = sessions([name])
    assert len(asked) >= 15
    for at, request in enumerate(asked):
        assert request.when in request.messages[-1].text or request.when in request.messages[-2].text
        earlier = [one for one in asked[:at] if one.when == request.when]
        assert all(one == request for one in earlier), request.when


def test_arguments_come_back_otherwise_and_mean_the_same() -> None:
    (asked,) = sessions(["fix"])
    calls = [call for request in asked for call in request.reply.calls]
    assert any(json.dumps(call.arguments) not in (rewritten(call),) for call in calls)
    assert all(json.loads(rewritten(call)) == call.arguments for call in calls)
    assert all(json.dumps(call.arguments) in spoken(Message("assistant", calls=(call,))) for call in calls)


REQUESTS = [
    Request("s", (Message("user", "a"),), (), Message("assistant", "b"), "a"),
    Request(
        "s", (Message("user", "a"), Message("assistant", "b"), Message("user", "c")), (), Message("x"), "c"
    ),
]


def test_perfect_counts_what_was_read_or_said_before() -> None:
    prompts, replies = [[1, 2, 3], [1, 2, 3, 4, 5, 9, 7]], [[4, 5, 6], [8]]
    costs = [Cost(3, 0, 0.5), Cost(7, 4, 0.25)]
    turns = counted(("m", "s", "d"), REQUESTS, costs, prompts, replies)
    # Of the reply 4 5 6 the last token ended it and was not read.
    assert [(turn.read_tokens, turn.perfect_read_tokens) for turn in turns] == [(3, 3), (3, 2)]
    assert "| m | s | d | 2 | 10 | 4 | 6 | 5 | 20.00% | 0.8 s |" in table(turns)
    unlike = [REQUESTS[0], replace(REQUESTS[1], tools=({"name": "t"},))]
    turns = counted(("m", "s", "d"), unlike, costs, prompts, replies)
    assert turns[1].perfect_read_tokens == 4
    with pytest.raises(RuntimeError, match="has 7 tokens, not 8"):
        counted(("m", "s", "d"), REQUESTS, [costs[0], Cost(8, 0, 1.0)], prompts, replies)


def test_sessions_end_where_the_context_does() -> None:
    (asked,) = sessions(["explore"])
    assert 2 <= len(fitting(asked, "hybrid")) < len(fitting(asked, "gemma3")) == len(asked)


@pytest.mark.parametrize("name", DIALECTS)
def test_each_dialect_is_understood(name: str) -> None:
    dialect, (asked,) = DIALECTS[name], sessions(["fix"], 4)
    body = dialect.body(asked[-1])
    limit = "max_output_tokens" if name == "responses" else "max_tokens"
    few = {"options": {"num_predict": 1}} if name == "ollama" else {limit: 16}
    with served_toy(ToyEngine(("full",), context_tokens=16384)) as model:
        reply = client_for(model).post(dialect.path, json={**body, **few, "stream": True})
    assert reply.status_code == 200, reply.text
