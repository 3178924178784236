"""Whatever a server does, an Exchange comes of it."""

from __future__ import annotations

import json
import socket
import time

import pytest

from headstart.accept import wires
from headstart.accept.endpoint import Endpoint
from headstart.accept.exchange import Ask, Exchange, FailureKind, Message
from tests.accept.scripted import CUT_STREAM, STREAM, Script, http, scripted

ASK = Ask(messages=(Message("user", "hi"),))


def sent(script: Script, ask: Ask = ASK, wire: str = "openai_chat", **fields: float) -> Exchange:
    with scripted(script) as root:
        endpoint = Endpoint(root, "key", patience_s=fields.pop("patience_s", 5.0))
        try:
            return endpoint.send(ask, wires.load(wire), model="m", **fields)  # type: ignore[arg-type]
        finally:
            endpoint.close()


def delta(text: str, **more: object) -> bytes:
    data = {"choices": [{"delta": {"content": text}, "finish_reason": None}], **more}
    return b"data: " + json.dumps(data).encode() + b"\n\n"


END = b'data: {"choices":[{"delta":{},"finish_reason":"stop"}]}\n\n'
USAGE = (
    b'data: {"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":2,'
    b'"prompt_tokens_details":{"cached_tokens":0}}}\n\n'
)
DONE = b"data: [DONE]\n\n"


def says(*parts: bytes, pause_s: float = 0.0) -> Script:
    def script(connection: socket.socket, _: bytes) -> None:
        for part in parts:
            connection.sendall(part)
            time.sleep(pause_s)

    return script


def test_a_stream_is_read_and_zero_is_not_unknown() -> None:
    done = sent(says(STREAM, delta("one "), delta("two"), END, USAGE, DONE))
    assert done.ok
    assert (done.text, done.finish, done.prompt_tokens, done.reused) == ("one two", "stop", 9, 0)
    without = sent(says(STREAM, delta("one"), END, DONE))
    assert without.reused is None


def test_keepalives_and_empty_deltas_are_no_first_tokens() -> None:
    done = sent(
        says(
            STREAM,
            b": wait\n\n" + delta(""),
            delta("", model="keepalive"),
            delta("x"),
            END,
            DONE,
            pause_s=0.1,
        )
    )
    assert done.first_token_s is not None
    assert done.first_token_s > 0.25


def test_a_reply_in_one_piece_has_no_first_token() -> None:
    body = {
        "choices": [{"message": {"content": "yes"}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 4},
    }
    done = sent(says(http(json.dumps(body).encode())), Ask(messages=ASK.messages, stream=False))
    assert (done.text, done.first_token_s, done.prompt_tokens) == ("yes", None, 4)


@pytest.mark.parametrize(
    ("script", "kind"),
    [
        (says(http(b'{"error":{"message":"too long"}}', "400 Bad Request")), FailureKind.REFUSED),
        (says(http(b"<html>", "500 Oops")), FailureKind.SERVER_ERROR),
        (says(STREAM, delta("x")), FailureKind.DROPPED),
        (says(CUT_STREAM, delta("x")), FailureKind.DROPPED),
        (says(b""), FailureKind.DROPPED),
        (says(STREAM, b"data: {nonsense\n\n"), FailureKind.BROKEN),
        (says(STREAM, b"\xff\xfe\x00 what\n\n"), FailureKind.BROKEN),
        (says(STREAM, b"data: [1, 2]\n\n"), FailureKind.BROKEN),
        (says(STREAM, b'data: {"error":{"message":"out of memory"}}\n\n'), FailureKind.SERVER_ERROR),
        (says(http(b"not json")), FailureKind.BROKEN),
    ],
)
def test_what_goes_wrong_has_a_name(script: Script, kind: FailureKind) -> None:
    done = sent(script)
    assert done.failure is not None
    assert done.failure.kind is kind
    assert "\n" not in done.failure.detail


def test_a_server_that_hangs_is_given_up() -> None:
    done = sent(lambda connection, _: time.sleep(3), patience_s=0.3)
    assert done.failure is not None
    assert done.failure.kind is FailureKind.HUNG
    assert done.total_s < 2


def test_keepalives_do_not_keep_a_hanging_request_alive() -> None:
    def script(connection: socket.socket, _: bytes) -> None:
        connection.sendall(STREAM)
        for _number in range(50):
            connection.sendall(b": wait\n\n")
            time.sleep(0.05)

    done = sent(script, patience_s=0.4)
    assert done.failure is not None
    assert done.failure.kind is FailureKind.HUNG


def test_a_request_is_cancelled_in_the_middle() -> None:
    done = sent(lambda connection, _: time.sleep(3), cancel_after_s=0.2)
    assert done.failure is not None
    assert done.failure.kind is FailureKind.CANCELLED
    assert done.total_s < 1


def test_nobody_there() -> None:
    done = Endpoint("http://127.0.0.1:9").send(ASK, wires.load("openai_chat"), model=None)
    assert done.failure is not None
    assert done.failure.kind is FailureKind.UNREACHABLE


def test_lines_of_ollama() -> None:
    parts = [
        {"message": {"content": "a"}, "done": False},
        {"message": {"content": "b"}, "done": True, "prompt_eval_count": 7, "prompt_eval_cached_count": 5},
    ]
    lines = b"".join(json.dumps(part).encode() + b"\n" for part in parts)
    kind = STREAM.replace(b"text/event-stream", b"application/x-ndjson")
    done = sent(says(kind, lines), wire="ollama")
    assert (done.text, done.prompt_tokens, done.reused, done.finish) == ("ab", 7, 5, "stop")


def test_anthropic_counts_the_parts_of_a_prompt() -> None:
    events = [
        {
            "type": "message_start",
            "message": {
                "usage": {"input_tokens": 1, "cache_read_input_tokens": 8, "cache_creation_input_tokens": 2}
            },
        },
        {"type": "content_block_delta", "delta": {"type": "text_delta", "text": "hey"}},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 1}},
        {"type": "message_stop"},
    ]
    stream = b"".join(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode() for event in events)
    done = sent(says(STREAM, stream), wire="anthropic")
    assert (done.text, done.prompt_tokens, done.reused, done.finish) == ("hey", 11, 8, "end_turn")
