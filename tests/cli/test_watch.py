"""`headstart watch` as a program: what it shows, keeps, repairs and refuses, with both vendors' SDKs."""

from __future__ import annotations

import asyncio
import json
import signal
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anthropic
import httpx
import openai
import pytest

from headstart.blame.recording import Recording
from headstart.cli import main
from tests.blame.proxying import Asked, Watched, watched
from tests.cli.watching import watching

KEY = "sk-test-0123456789abcdef"
ODD = '{ "path" : "\\u0061.py",  "limit":4}'


def sse(*events: dict[str, Any]) -> bytes:
    return b"".join(f"event: {one['type']}\ndata: {json.dumps(one)}\n\n".encode() for one in events)


COUNTS = {
    "input_tokens": 7,
    "cache_read_input_tokens": 90,
    "cache_creation_input_tokens": 3,
    "output_tokens": 1,
}
MESSAGE = {
    **{"id": "msg_1", "type": "message", "role": "assistant", "model": "m", "content": []},
    **{"stop_reason": None, "stop_sequence": None, "usage": COUNTS},
}
TOOL = {"type": "tool_use", "id": "toolu_1", "name": "read", "input": {}}
ENDED = {"stop_reason": "tool_use", "stop_sequence": None}


def block(index: int, kind: str, **more: Any) -> dict[str, Any]:
    return {"type": f"content_block_{kind}", "index": index, **more}


PIECES = [
    sse({"type": "message_start", "message": MESSAGE}),
    sse({"type": "ping"}),
    sse(block(0, "start", content_block={"type": "text", "text": ""})),
    sse(block(0, "delta", delta={"type": "text_delta", "text": "I read it.  \n"})),
    sse(block(0, "stop")),
    sse(block(1, "start", content_block=TOOL)),
    sse(block(1, "delta", delta={"type": "input_json_delta", "partial_json": ODD[:9]})),
    sse(block(1, "delta", delta={"type": "input_json_delta", "partial_json": ODD[9:]})),
    sse(block(1, "stop")),
    sse({"type": "message_delta", "delta": ENDED, "usage": {"output_tokens": 9}}, {"type": "message_stop"}),
]


async def answer(asked: Asked, writer: asyncio.StreamWriter) -> None:
    """Anthropic's stream for messages, and a chat completion for everything else."""
    if b"/v1/messages" in asked.head:
        writer.write(
            b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
        )
        for piece in PIECES:
            writer.write(b"%x\r\n%s\r\n" % (len(piece), piece))
            await writer.drain()
            await asyncio.sleep(0.01)
        writer.write(b"0\r\n\r\n")
        return
    choice = {"index": 0, "message": {"role": "assistant", "content": "Hi"}, "finish_reason": "stop"}
    usage = {"prompt_tokens": 1200, "completion_tokens": 2, "total_tokens": 1202}
    body = {
        "id": "c",
        "object": "chat.completion",
        "created": 1,
        "model": "m",
        "choices": [choice],
        "usage": usage,
    }
    text = json.dumps(body).encode()
    writer.write(
        b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(text) + text
    )


@pytest.fixture(scope="module")
def fake() -> Iterator[Watched]:
    with watched(answer) as running:
        yield running


def test_anthropics_sdk_streams_through_it_and_the_turn_is_shown_and_recorded(
    fake: Watched, tmp_path: Path
) -> None:
    record = tmp_path / "recording.jsonl"
    with watching(fake.fake.url, "--record", str(record)) as program:
        client = anthropic.Anthropic(base_url=program.url, api_key=KEY, max_retries=0)
        tools: list[Any] = [{"name": "read", "description": "d", "input_schema": {"type": "object"}}]
        asked: list[Any] = [{"role": "user", "content": "Read a.py"}]
        with client.messages.stream(
            model="m", max_tokens=9, messages=asked, tools=tools, system="s"
        ) as stream:
            message = stream.get_final_message()
        assert [block.type for block in message.content] == ["text", "tool_use"]
        assert program.line().split() == ["prompt", "reused", "again", "new", "first", "token"]
        shown = program.line().split()
        assert shown[:6] == ["A", "1", "100", "90", "-", "10"]
        assert float(shown[6]) < 1
        assert program.stop() == 0
    recording = Recording(record)
    [exchange] = recording
    assert recording.header["upstream"] == fake.fake.url
    assert exchange.reply.text == "I read it.  \n"
    assert exchange.reply.calls[0].arguments == ODD
    assert exchange.body["messages"] == asked
    assert KEY not in record.read_text()
    assert KEY.encode() in fake.fake.asked[-1].head
    assert stat.S_IMODE(record.stat().st_mode) == 0o600


def test_openais_sdk_and_lines_as_json(fake: Watched) -> None:
    with watching(fake.fake.url, "--json") as program:
        client = openai.OpenAI(base_url=f"{program.url}/v1", api_key=KEY, max_retries=0)
        messages: list[Any] = [{"role": "user", "content": "Hi"}]
        assert client.chat.completions.create(model="m", messages=messages).choices[0].message.content == "Hi"
        told = json.loads(program.line())
        assert (told["conversation"], told["turn"], told["prompt_tokens"]) == ("A", 1, 1200)
        assert told["reused_tokens"] is None
        assert program.stop(signal.SIGTERM) == 0


def test_the_same_bytes_reach_the_server_from_an_sdk(fake: Watched) -> None:
    """Head and body of the SDK's request, compared line by line with those of a direct one."""
    with watching(fake.fake.url) as program:
        before = len(fake.fake.asked)
        for base in (fake.fake.url, program.url):
            client = openai.OpenAI(base_url=f"{base}/v1", api_key=KEY, max_retries=0)
            client.chat.completions.create(model="m", messages=[{"role": "user", "content": "\u00e9"}])
        direct, through = fake.fake.asked[before:]
        assert direct.raw == through.raw


def test_repairs_are_made_on_the_way_and_named(fake: Watched) -> None:
    with watching(fake.fake.url, "--fix") as program:
        assert any(fact.startswith("fix     billing, tools, arguments, reminder") for fact in program.facts)
        for names in ("ab", "ba"):
            tools = [{"type": "function", "function": {"name": name}} for name in names]
            body = {"tools": tools, "messages": [{"role": "user", "content": "go"}]}
            httpx.post(f"{program.url}/v1/chat/completions", json=body)
        sent = json.loads(fake.fake.asked[-1].body)
        assert [tool["function"]["name"] for tool in sent["tools"]] == ["a", "b"]
        shown = [program.line() for _ in range(4)]
        assert shown[3].strip() == "fix tools: put 2 of 2 tools back in their first order"


def test_no_bodies_keeps_hashes_only(fake: Watched, tmp_path: Path) -> None:
    record = tmp_path / "r"
    with watching(fake.fake.url, "--record", str(record), "--no-bodies") as program:
        body = {"model": "m", "messages": [{"role": "user", "content": "between us"}]}
        httpx.post(f"{program.url}/v1/chat/completions", json=body)
        program.line()
        program.line()
        assert program.stop() == 0
    [exchange] = Recording(record)
    assert "between us" not in record.read_text()
    assert set(exchange.digests) >= {"model", "messages[0].content", "$reply.text"}


def test_a_server_that_is_down_is_told_to_client_and_terminal() -> None:
    with watching("http://127.0.0.1:9") as program:
        reply = httpx.post(f"{program.url}/v1/chat/completions", json={})
        assert reply.status_code == 502
        assert "nothing answers at http://127.0.0.1:9" in reply.json()["error"]["message"]
        program.line()
        program.line()
        assert "error: nothing answers at http://127.0.0.1:9" in program.line()


def test_what_runs_when_it_is_stopped_is_recorded_as_far_as_it_came(tmp_path: Path) -> None:
    async def slow(asked: Asked, writer: asyncio.StreamWriter) -> None:
        writer.write(
            b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
        )
        piece = b'data: {"choices":[{"index":0,"text":"one"}]}\n\n'
        writer.write(b"%x\r\n%s\r\n" % (len(piece), piece))
        await asyncio.sleep(60)

    record = tmp_path / "r"
    with watched(slow) as fake, watching(fake.fake.url, "--record", str(record)) as program:
        with httpx.stream("POST", f"{program.url}/v1/completions", json={"prompt": "x"}, timeout=20) as reply:
            lines = reply.iter_lines()
            next(lines)
            assert program.stop() == 0
        [exchange] = Recording(record)
        assert (exchange.reply.text, exchange.error) == ("one", "headstart watch was stopped")


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ([], "--upstream is missing"),
        (["--upstream", "localhost:1"], "expected the URL of a server"),
        (["--upstream", "ftp://h"], "expected the URL of a server"),
        (["--upstream", "http://h:x"], "expected the URL of a server"),
        (["--upstream", "http://h", "--listen", "80"], "expected an address and a port"),
        (["--upstream", "http://h", "--listen", "0.0.0.0:0"], "add --allow-remote"),
        (["--upstream", "http://h", "--no-bodies"], "give --record FILE too"),
        (["--upstream", "http://h", "--fix", "tool"], "there is no such repair; did you mean tools?"),
        (["--upstream", "http://h", "--listen", "127.0.0.1:0", "--record", "/"], "--record /: "),
    ],
)
def test_what_cannot_be_used_is_one_line_and_status_2(
    flags: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["watch", *flags]) == 2
    shown = capsys.readouterr().err
    assert message in shown
    assert shown.count("\n") == 1


def test_help_names_every_repair(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["watch", "--help"])
    shown = capsys.readouterr().out
    for name in ("billing", "tools", "arguments", "reminder", "date", "127.0.0.1:8900"):
        assert name in shown
