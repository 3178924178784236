"""Replies put together from bytes, in pieces of any size, in every dialect and with every kind of fault."""

from __future__ import annotations

import gzip
import json
import zlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headstart.blame.exchange import Dialect, Reply, ToolCall, Usage
from headstart.blame.streams import Assembled, Assembler

SSE = {"content-type": "text/event-stream; charset=utf-8"}
JSON = {"content-type": "application/json"}
LINES = {"content-type": "application/x-ndjson"}
ODD = '{ "path" : "\\u0061.py",  "n":1e1}'


def sse(*payloads: Any) -> bytes:
    texts = [one if isinstance(one, str) else json.dumps(one) for one in payloads]
    return "".join(f"data: {text}\n\n" for text in texts).encode()


def put_together(
    dialect: Dialect, body: bytes, headers: dict[str, str] = SSE, *, step: int = 7, status: int = 200
) -> Assembled:
    """Fed in pieces of `step` bytes, the one at byte n at the time 10 + n / 1000."""
    assembler = Assembler(dialect, status, headers, 9.0)
    for begin in range(0, len(body), step):
        assembler.feed(body[begin : begin + step], 10 + begin / 1000)
    return assembler.end()


def delta(**fields: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": fields, "finish_reason": None}]}


def piece(index: int, arguments: str, **function: str) -> dict[str, Any]:
    call: dict[str, Any] = {"index": index, "function": {**function, "arguments": arguments}}
    return delta(tool_calls=[{**call, "id": f"call_{index}"} if function else call])


CHAT = sse(
    delta(role="assistant", content=""),
    delta(reasoning_content="Look "),
    delta(reasoning_content="first."),
    delta(content="I read \u2014 "),
    {"choices": [{"index": 1, "delta": {"content": "another reply"}}]},
    delta(content="it.  \n"),
    piece(0, "", name="read"),
    piece(0, ODD[:9]),
    piece(1, "{}", name="ls"),
    piece(0, ODD[9:]),
    {"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]},
    {
        "choices": [],
        "usage": {
            "prompt_tokens": 90,
            "completion_tokens": 7,
            "prompt_tokens_details": {"cached_tokens": 80},
        },
    },
    "[DONE]",
)


@pytest.mark.parametrize("step", [1, 3, 64, 100_000])
def test_openai_chat_stream(step: int) -> None:
    got = put_together(Dialect.OPENAI_CHAT, CHAT, step=step)
    calls = (ToolCall("call_0", "read", ODD), ToolCall("call_1", "ls", "{}"))
    assert got.reply == Reply("I read \u2014 it.  \n", "Look first.", calls, "tool_calls")
    assert got.usage == Usage(90, 80, 7)
    assert got.error is None


def test_the_first_token_is_the_first_content_and_not_what_keeps_the_line_open() -> None:
    quiet = b": ping\n\n" + sse(
        delta(role="assistant", content=""), {"prompt_progress": {"total": 9, "cache": 4}}
    )
    body = quiet + sse(delta(content="now"), "[DONE]")
    got = put_together(Dialect.OPENAI_CHAT, body, step=1)
    end = body.index(b'"now"') + body[body.index(b'"now"') :].index(b"\n\n")
    assert got.timing.first_token == pytest.approx(1 + (end + 0) / 1000, abs=0.0021)
    assert got.timing.total == pytest.approx(1 + (len(body) - 1) / 1000)
    assert got.usage == Usage(9, 4)
    assert got.server == "llama-server"


def test_a_piece_of_a_call_is_content_and_an_empty_one_is_not() -> None:
    def first(*payloads: Any) -> float | None:
        assembler = Assembler(Dialect.OPENAI_CHAT, 200, SSE, 0.0)
        for number, payload in enumerate(payloads, 1):
            assembler.feed(sse(payload), float(number))
        return assembler.end().timing.first_token

    assert first(piece(0, ""), piece(0, "{"), delta(content="x")) == 2
    assert first(piece(0, ""), piece(0, "", name="ls"), piece(0, "{")) == 2
    assert first(piece(0, ""), delta(content=""), {"choices": []}) is None


def test_openai_chat_whole() -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "read", "arguments": ODD}}
    message = {"role": "assistant", "content": "Hi", "reasoning_content": "Hm", "tool_calls": [call]}
    told = {"choices": [{"index": 0, "message": message, "finish_reason": "stop"}]}
    got = put_together(
        Dialect.OPENAI_CHAT, json.dumps({**told, "usage": {"prompt_tokens": 3}}).encode(), JSON
    )
    assert got.reply == Reply("Hi", "Hm", (ToolCall("c1", "read", ODD),), "stop")
    assert got.usage == Usage(3, None, None)
    assert got.timing.first_token is None


def test_llama_servers_timings_count_only_what_was_read() -> None:
    timings = {"cache_n": 70, "prompt_n": 5, "prompt_ms": 250.0, "predicted_n": 4}
    body = sse(
        delta(content="x"),
        {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}], "timings": timings},
    )
    got = put_together(Dialect.OPENAI_CHAT, body)
    assert (got.usage, got.timing.prefill, got.server) == (Usage(75, 70, 4), 0.25, "llama-server")
    assert got.error is None  # some servers leave the end mark out


def test_completions() -> None:
    body = sse(
        {"choices": [{"index": 0, "text": "on"}]},
        {"choices": [{"index": 0, "text": "ce", "finish_reason": "length"}]},
    )
    got = put_together(Dialect.OPENAI_COMPLETIONS, body)
    assert got.reply == Reply("once", finish="length")


RESPONSE = {
    "object": "response",
    "status": "completed",
    "output": [
        {"type": "reasoning", "summary": [{"type": "summary_text", "text": "Hm"}]},
        {"type": "message", "content": [{"type": "output_text", "text": "Hello"}]},
        {"type": "function_call", "id": "fc", "call_id": "c9", "name": "ls", "arguments": ODD},
    ],
    "usage": {"input_tokens": 50, "output_tokens": 6, "input_tokens_details": {"cached_tokens": 0}},
}
REPLY = Reply("Hello", "Hm", (ToolCall("c9", "ls", ODD),), "completed")


def test_openai_responses() -> None:
    opened = {"type": "function_call", "id": "fc", "call_id": "c9", "name": "ls", "arguments": ""}
    events = [
        {"type": "response.created", "response": {"object": "response", "output": []}},
        {"type": "response.reasoning_summary_text.delta", "output_index": 0, "delta": "Hm"},
        {"type": "response.output_text.delta", "output_index": 1, "delta": "Hel"},
        {"type": "response.output_text.delta", "output_index": 1, "delta": "lo"},
        {"type": "response.output_item.added", "output_index": 2, "item": opened},
        {"type": "response.function_call_arguments.delta", "output_index": 2, "delta": ODD[:5]},
        {"type": "response.function_call_arguments.delta", "output_index": 2, "delta": ODD[5:]},
        {"type": "response.output_item.done", "output_index": 2, "item": {**opened, "arguments": ODD}},
        {"type": "response.completed", "response": RESPONSE},
    ]
    streamed = put_together(Dialect.OPENAI_RESPONSES, sse(*events))
    whole = put_together(Dialect.OPENAI_RESPONSES, json.dumps(RESPONSE).encode(), JSON)
    assert streamed.reply == whole.reply == REPLY
    assert streamed.usage == whole.usage == Usage(50, 0, 6)
    assert streamed.error is None
    only_end = put_together(Dialect.OPENAI_RESPONSES, sse(events[-1]))
    assert only_end.reply == REPLY


def opened(index: int, id: str, name: str) -> dict[str, Any]:
    block = {"type": "tool_use", "id": id, "name": name, "input": {}}
    return {"type": "content_block_start", "index": index, "content_block": block}


def test_anthropic() -> None:
    kind, end = "input_json_delta", {"output_tokens": 42, "input_tokens": None}
    start = {
        "input_tokens": 10,
        "cache_read_input_tokens": 200,
        "cache_creation_input_tokens": 5,
        "output_tokens": 1,
    }
    events = [
        {"type": "message_start", "message": {"content": [], "usage": start}},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "thinking", "thinking": ""}},
        {"type": "ping"},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "thinking_delta", "thinking": "Hm"}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "signature_delta", "signature": "xyz"}},
        {"type": "content_block_stop", "index": 0},
        {"type": "content_block_start", "index": 1, "content_block": {"type": "text", "text": ""}},
        {"type": "content_block_delta", "index": 1, "delta": {"type": "text_delta", "text": "Hi"}},
        opened(2, "t1", "Edit"),
        {"type": "content_block_delta", "index": 2, "delta": {"type": kind, "partial_json": ODD[:4]}},
        {"type": "content_block_delta", "index": 2, "delta": {"type": kind, "partial_json": ODD[4:]}},
        {"type": "content_block_stop", "index": 2},
        opened(3, "t2", "Now"),
        {"type": "content_block_stop", "index": 3},
        {"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": end},
        {"type": "message_stop"},
    ]  # fmt: skip
    got = put_together(Dialect.ANTHROPIC, sse(*events))
    calls = (ToolCall("t1", "Edit", ODD), ToolCall("t2", "Now", "{}", exact=False))
    assert got.reply == Reply("Hi", "Hm", calls, "tool_use")
    assert got.usage == Usage(215, 200, 42)
    assert got.error is None


def test_anthropic_whole_and_counts_that_are_absent() -> None:
    content = [
        {"type": "text", "text": "Hi"},
        {"type": "tool_use", "id": "t", "name": "ls", "input": {"b": 1, "a": 2}},
    ]
    body = {
        "type": "message",
        "content": content,
        "stop_reason": "end_turn",
        "usage": {"input_tokens": 7, "output_tokens": 2},
    }
    got = put_together(Dialect.ANTHROPIC, json.dumps(body).encode(), JSON)
    assert got.reply == Reply("Hi", "", (ToolCall("t", "ls", '{"b":1,"a":2}', exact=False),), "end_turn")
    assert got.usage == Usage(7, None, 2)


def test_ollama() -> None:
    call = {"function": {"name": "ls", "arguments": {"path": "."}}}
    lines = [
        {"message": {"role": "assistant", "content": "", "thinking": "Hm"}, "done": False},
        {"message": {"role": "assistant", "content": "Hi"}, "done": False},
        {"message": {"role": "assistant", "content": "", "tool_calls": [call]}, "done": False},
        {"message": {"content": ""}, "done": True, "done_reason": "stop", "prompt_eval_count": 9,
         "prompt_eval_duration": 2_000_000_000, "load_duration": 500_000_000, "eval_count": 3},
    ]  # fmt: skip
    body = "".join(json.dumps(line) + "\n" for line in lines).encode()
    got = put_together(Dialect.OLLAMA_CHAT, body, LINES)
    assert got.reply == Reply("Hi", "Hm", (ToolCall("", "ls", '{"path":"."}', exact=False),), "stop")
    assert (got.usage, got.timing.prefill, got.timing.load) == (Usage(9, None, 3), 2.0, 0.5)
    assert got.timing.first_token is not None
    cached = json.dumps(
        {"response": "Hi", "done": True, "prompt_eval_count": 9, "prompt_eval_cached_count": 8}
    )
    assert put_together(Dialect.OLLAMA_GENERATE, cached.encode(), JSON).usage == Usage(9, 8)


@pytest.mark.parametrize("value", [None, "12", -1, True, float("nan"), [1], 1e300])
def test_counts_that_are_none_stay_unknown(value: Any) -> None:
    body = {
        "choices": [],
        "usage": {"prompt_tokens": value, "prompt_tokens_details": {"cached_tokens": value}},
    }
    assert put_together(Dialect.OPENAI_CHAT, json.dumps(body).encode(), JSON).usage == Usage()


def test_what_is_cut_is_kept_up_to_there_and_said() -> None:
    got = put_together(Dialect.OPENAI_CHAT, CHAT[: CHAT.index(b"it.  ") - 4])
    assert got.reply.text == "I read \u2014 "
    assert "no JSON" in (got.error or "") or got.error == "the stream ended without its end mark"
    got = put_together(Dialect.OPENAI_CHAT, sse(delta(content="a")))
    assert got.error == "the stream ended without its end mark"


def test_a_client_that_hangs_up_at_the_end_mark_has_it_all() -> None:
    """As SDKs do: they close the connection when they have read [DONE]."""
    body = sse(delta(content="one")) + b"data: [DONE]\n\n"
    assembler = Assembler(Dialect.OPENAI_CHAT, 200, {"content-type": "text/event-stream"}, 0.0)
    assembler.feed(body, 1.0)
    assert assembler.end("the client went away").error is None
    cut = Assembler(Dialect.OPENAI_CHAT, 200, {"content-type": "text/event-stream"}, 0.0)
    cut.feed(sse(delta(content="one")), 1.0)
    assert "the client went away" in (cut.end("the client went away").error or "")


def test_events_that_are_no_json_are_passed_over_and_counted() -> None:
    body = sse(delta(content="a"), "{oops", "[1]", delta(content="b"), "[DONE]")
    got = put_together(Dialect.OPENAI_CHAT, body)
    assert got.reply.text == "ab"
    assert got.error == "2 events of the stream were no JSON object and were passed over"


def test_an_error_in_a_stream_is_said() -> None:
    body = sse(delta(content="a"), {"error": {"message": "out of\nmemory", "type": "x"}})
    assert put_together(Dialect.OPENAI_CHAT, body).error == "out of memory"
    body = sse({"type": "error", "error": {"type": "overloaded_error", "message": "busy"}})
    assert put_together(Dialect.ANTHROPIC, body).error == "busy"


@pytest.mark.parametrize("end", ["\r\n", "\r", "\n"])
def test_every_line_end_and_several_data_lines(end: str) -> None:
    lines = [
        "event: x",
        'data: {"choices": [{"index": 0,',
        'data:"text": "hi"}]}',
        "",
        "data: [DONE]",
        "",
        "",
    ]
    text = end.join(lines)
    for step in (1, 2, 1000):
        got = put_together(Dialect.OPENAI_COMPLETIONS, text.encode(), step=step)
        assert (got.reply.text, got.error) == ("hi", None)


def test_a_stream_without_its_type_is_known_by_its_beginning() -> None:
    assert put_together(Dialect.OPENAI_CHAT, CHAT, {}, step=1000).reply.text.startswith("I read")


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "bare"])
def test_compressed(encoding: str) -> None:
    bare = zlib.compressobj(wbits=-15)
    pressed = {
        "gzip": gzip.compress(CHAT),
        "deflate": zlib.compress(CHAT),
        "bare": bare.compress(CHAT) + bare.flush(),
    }[encoding]
    headers = {**SSE, "content-encoding": "deflate" if encoding == "bare" else encoding}
    assert put_together(Dialect.OPENAI_CHAT, pressed, headers).reply.text.startswith("I read")
    damaged = put_together(Dialect.OPENAI_CHAT, pressed[:20] + b"\xff" * 60, headers)
    assert "damaged" in (damaged.error or "")


WORDS = st.sampled_from(
    [
        "choices", "delta", "message", "content", "tool_calls", "function", "arguments", "usage", "timings",
        "type", "index", "item", "output", "response", "error", "id", "name", "thinking", "text",
        "content_block", "status", "done", "input",
    ]
)  # fmt: skip
SOME = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=5),
    max_leaves=20,
)


@given(st.sampled_from(Dialect), st.lists(st.dictionaries(WORDS, SOME, max_size=6), max_size=4))
def test_nothing_a_server_sends_raises(dialect: Dialect, payloads: list[Any]) -> None:
    for headers, body in ((SSE, sse(*payloads)), (JSON, json.dumps(payloads[:1]).strip("[]").encode())):
        for status in (200, 500):
            got = put_together(dialect, body, headers, step=1000, status=status)
            assert isinstance(got.reply.text, str)


@given(st.sampled_from(Dialect), st.binary(max_size=200), st.sampled_from([SSE, JSON, LINES, {}]))
def test_no_bytes_raise(dialect: Dialect, body: bytes, headers: dict[str, str]) -> None:
    put_together(dialect, body, headers, step=9)
