"""Streams: what is sent and when, errors before and after the first event, clients that go away."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import httpx
import pytest

from headstart.api import openai_stream
from headstart.chat.stream import TextStream
from headstart.chat.template import ChatTemplate
from headstart.engines.base import Vocabulary
from headstart.engines.toy import ToyEngine
from headstart.errors import EngineError, RequestError
from headstart.prefix.plan import PromptHints
from headstart.prefix.report import CacheReport
from headstart.serving.models import ServedModel
from headstart.serving.request import (
    Delta,
    Event,
    Failed,
    Finished,
    FinishReason,
    GenerationRequest,
    PrefillDone,
    Timings,
)
from tests.api.served import (
    CONTEXT,
    Scripted,
    app_for,
    client_for,
    http_server,
    served_toy,
    sse_events,
    wait_until,
)

CHAT = "/v1/chat/completions"
HELLO = [{"role": "user", "content": "hello"}]
REPORT = CacheReport(prompt_tokens=24, divergence=8, restored=8, replayed=0, new=16)
TIMINGS = Timings(queued_s=0.0, prefill_s=0.5, decode_s=0.25, first_token_s=0.5)


def end(tail: str = "", tokens: int = 3, reason: FinishReason = FinishReason.STOP) -> Finished:
    return Finished(reason, tail, tokens, REPORT, TIMINGS)


def said(*texts: str, tail: str = "") -> list[Event]:
    deltas = [Delta(token % 64, text) for token, text in enumerate(texts)]
    return [PrefillDone(REPORT), *deltas, end(tail, len(texts) + 1)]


@pytest.fixture(scope="module")
def toy() -> Iterator[ServedModel]:
    with served_toy() as model:
        yield model


def scripted(toy: ServedModel, *answers: list[Event]) -> tuple[ServedModel, Scripted]:
    left = list(answers)
    scheduler = Scripted(lambda request: left.pop(0) if len(left) > 1 else left[0])
    return replace(toy, scheduler=scheduler), scheduler


def stream(model: ServedModel, **fields: Any) -> httpx.Response:
    body = {"messages": HELLO, "stream": True} | fields
    return client_for(model).post(CHAT, json=body)


def test_numbers_are_the_schedulers(toy: ServedModel) -> None:
    model, _ = scripted(toy, said("a", "b", "c"))
    reply = client_for(model).post(CHAT, json={"messages": HELLO}).json()
    usage, timings = reply["usage"], reply["timings"]
    assert (usage["prompt_tokens"], usage["completion_tokens"]) == (24, 4)
    assert usage["prompt_tokens_details"] == {"cached_tokens": 8}
    assert usage["prompt_tokens_per_second"] == pytest.approx(16 / 0.5)
    assert usage["generation_tokens_per_second"] == pytest.approx(3 / 0.25)
    assert (timings["cache_n"], timings["prompt_n"], timings["prompt_ms"]) == (8, 16, 500.0)
    assert (timings["predicted_n"], timings["predicted_ms"]) == (4, 250.0)


def test_empty_deltas_send_nothing_and_the_tail_is_sent(toy: ServedModel) -> None:
    model, _ = scripted(toy, said("", "a", "", "", tail="<st"))
    *chunks, done = sse_events(stream(model).text)
    assert done == "[DONE]"
    assert "".join(chunk["choices"][0]["delta"].get("content", "") for chunk in chunks) == "a<st"
    assert [chunk["choices"][0]["finish_reason"] for chunk in chunks][-1] == "stop"


def test_empty_reply_still_has_a_role_and_a_reason(toy: ServedModel) -> None:
    model, _ = scripted(toy, said())
    chunk, done = sse_events(stream(model).text)
    assert chunk["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert chunk["choices"][0]["finish_reason"] == "stop"
    assert done == "[DONE]"


@pytest.mark.parametrize("streamed", [False, True])
def test_failure_before_the_first_event_has_its_http_status(toy: ServedModel, streamed: bool) -> None:
    for error, status in ((EngineError("broken"), 500), (RequestError("no", status=422, code="c"), 422)):
        model, _ = scripted(toy, [Failed(error)])
        answer = stream(model, stream=streamed)
        assert answer.status_code == status
        assert answer.json()["error"]["message"] == str(error)


def test_failure_of_one_reply_cancels_the_others(toy: ServedModel) -> None:
    model, scheduler = scripted(toy, [PrefillDone(REPORT)], [Failed(EngineError("broken"))])
    answer = client_for(model).post(CHAT, json={"messages": HELLO, "n": 3})
    assert answer.status_code == 500
    assert 0 in scheduler.cancelled


def test_reply_stopped_by_the_server_is_an_error_not_a_stop(toy: ServedModel) -> None:
    model, _ = scripted(toy, [PrefillDone(REPORT), end(reason=FinishReason.CANCELLED)])
    assert client_for(model).post(CHAT, json={"messages": HELLO}).status_code == 500


def prompt_of(model: ServedModel, scheduler: Scripted, **fields: Any) -> str:
    assert client_for(model).post(CHAT, json={"messages": HELLO, **fields}).status_code == 200
    return model.text_of(scheduler.requests[-1].prompt)


def test_template_arguments_reach_the_prompt(toy: ServedModel) -> None:
    quiet = "{% if enable_thinking is false %}<quiet>{% endif %}"
    template = ChatTemplate(
        "{{ messages[0].content }}" + quiet + "|{{ add_generation_prompt }}", bos="", eos=""
    )
    model, scheduler = scripted(replace(toy, template=template), said("a"))
    assert prompt_of(model, scheduler) == "hello|True"
    assert prompt_of(model, scheduler, chat_template_kwargs={"enable_thinking": False}) == "hello<quiet>|True"
    assert prompt_of(model, scheduler, add_generation_prompt=False) == "hello|False"


@pytest.mark.parametrize("recurrent", [True, False])
def test_hints_are_found_only_for_layouts_that_can_use_them(toy: ServedModel, recurrent: bool) -> None:
    engine = ToyEngine(("full", "recurrent") if recurrent else ("full", "window"))
    model, scheduler = scripted(replace(toy, layout=engine.layout), said("a"))
    talk = [{"role": role, "content": f"a {role} text"} for role in ("system", "user", "assistant", "user")]
    prompt = prompt_of(model, scheduler, messages=talk)
    hints = scheduler.requests[-1].hints
    if not recurrent:
        assert hints == PromptHints()
        return
    tokens = scheduler.requests[-1].prompt
    assert [model.text_of(tokens[start:])[:17] for start in hints.message_starts] == [
        "<|im_start|>user\n",
        "<|im_start|>assis",
        "<|im_start|>user\n",
    ]
    assert hints.head_end == hints.message_starts[0]
    assert model.text_of(tokens[hints.body_end :]) == "<|im_start|>assistant\n"
    assert prompt.endswith("assistant\n")


class Slow:
    """Sends each event from a thread after a pause."""

    def __init__(self, events: list[Event], pause_s: float) -> None:
        self.cancelled = threading.Event()
        self._events, self._pause_s = events, pause_s

    def submit(self, request: GenerationRequest, sink: Callable[[Event], None]) -> int:
        def run() -> None:
            for event in self._events:
                time.sleep(self._pause_s)
                sink(event)

        threading.Thread(target=run, daemon=True).start()
        return 0

    def cancel(self, ticket: int) -> None:
        self.cancelled.set()


def test_waiting_is_bridged_by_comments_only(toy: ServedModel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(openai_stream, "KEEP_ALIVE_S", 0.05)
    monkeypatch.setattr("headstart.api.answering.EARLY_FAILURE_S", 0.05)
    text = stream(replace(toy, scheduler=Slow(said("late"), 0.4))).text
    before = text[: text.index("data:")]
    assert before
    assert set(before.split("\n\n")) == {": keep-alive", ""}
    assert sse_events(text)[0]["choices"][0]["delta"]["content"] == "late"


def test_failure_after_the_stream_began_is_an_error_event(
    toy: ServedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headstart.api.answering.EARLY_FAILURE_S", 0.05)
    events = [PrefillDone(REPORT), Delta(1, "a"), Failed(EngineError("broken"))]
    answer = stream(replace(toy, scheduler=Slow(events, 0.2)))
    assert answer.status_code == 200
    *chunks, error, done = sse_events(answer.text)
    assert chunks[0]["choices"][0]["delta"]["content"] == "a"
    assert error["error"]["message"] == "broken"
    assert done == "[DONE]"


def test_tokens_that_come_together_share_a_chunk(toy: ServedModel) -> None:
    model, _ = scripted(toy, said(*["x"] * 500))
    *chunks, _ = sse_events(stream(model).text)
    assert len(chunks) <= 3
    assert sum(len(chunk["choices"][0]["delta"].get("content", "")) for chunk in chunks) == 500


def test_invalid_utf8_split_over_tokens(toy: ServedModel) -> None:
    pieces = [b"\xf0\x9f", b"\x99\x82 ", b"\xe2", b"\x82", b"x", b"\xff", b"\xc3"]
    vocabulary = Vocabulary(pieces, frozenset(), frozenset(), None, None, adds_bos=False)
    text = TextStream(vocabulary, ())
    texts = [text.push(token) for token in range(len(pieces))]
    events: list[Event] = [
        PrefillDone(REPORT),
        *(Delta(token, piece, -0.5) for token, piece in enumerate(texts)),
        end(text.finish(), len(pieces)),
    ]
    model, _ = scripted(replace(toy, vocabulary=vocabulary), events)
    model = replace(model, tokenize=toy.tokenize)
    answer = client_for(model).post("/v1/completions", json={"prompt": [1, 2, 3], "logprobs": 0})
    assert answer.json()["choices"][0]["text"] == "🙂 \ufffdx\ufffd\ufffd"
    *chunks, _ = sse_events(
        client_for(model).post("/v1/completions", json={"prompt": [1], "stream": True, "logprobs": 0}).text
    )
    assert "".join(chunk["choices"][0]["text"] for chunk in chunks) == "🙂 \ufffdx\ufffd\ufffd"


# -- clients that go away: a real server and real sockets ------------------------------------------


@pytest.fixture
def slow_toy() -> Iterator[tuple[ServedModel, str]]:
    engine = ToyEngine(context_tokens=CONTEXT, step_delay_s=0.02)
    with served_toy(engine) as model, http_server(app_for(model)) as url:
        yield model, url


def send_and_hang_up(url: str, body: bytes, *, after: Callable[[], bool], read: bool) -> None:
    host, port = url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port))) as connection:
        head = f"POST {CHAT} HTTP/1.1\r\nHost: {host}\r\nContent-Length: {len(body)}\r\n\r\n"
        connection.sendall(head.encode() + body)
        if read:
            received = b""
            while b"content" not in received:
                received += connection.recv(4096)
        wait_until(after)


@pytest.mark.parametrize("streamed", ["true", "false"])
@pytest.mark.parametrize("phase", ["prefill", "decode"])
def test_client_that_hangs_up_ends_its_request(
    slow_toy: tuple[ServedModel, str], phase: str, streamed: str
) -> None:
    model, url = slow_toy
    scheduler: Any = model.scheduler
    long = "word " * 300 if phase == "prefill" else "word"
    body = (
        f'{{"messages":[{{"role":"user","content":"{long}"}}],"stream":{streamed},"ignore_eos":true}}'
    ).encode()

    def reached() -> bool:
        snapshot = scheduler.snapshot()
        done = snapshot.prefilled_tokens if phase == "prefill" else snapshot.decoded_tokens
        return bool(snapshot.running == 1 and done > 2)

    send_and_hang_up(url, body, after=reached, read=phase == "decode" and streamed == "true")
    wait_until(lambda: scheduler.snapshot().running == 0, timeout_s=3.0)
    if phase == "prefill":
        assert scheduler.snapshot().prefilled_tokens < 1400
    again = httpx.post(url + CHAT, json={"messages": HELLO, "max_tokens": 2}, timeout=20)
    assert again.status_code == 200


def test_hanging_up_in_the_middle_of_the_body(slow_toy: tuple[ServedModel, str]) -> None:
    _, url = slow_toy
    host, port = url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port))) as connection:
        head = f"POST {CHAT} HTTP/1.1\r\nHost: {host}\r\nContent-Length: 1000\r\n\r\n"
        connection.sendall(head.encode() + b'{"messages"')
    assert httpx.get(f"{url}/v1/models", timeout=20).status_code == 200


def test_hanging_up_in_the_queue(slow_toy: tuple[ServedModel, str]) -> None:
    model, url = slow_toy
    scheduler: Any = model.scheduler
    body = {"messages": HELLO, "max_tokens": 60, "ignore_eos": True, "n": 4}
    first = threading.Thread(target=lambda: httpx.post(url + CHAT, json=body, timeout=30))
    first.start()
    wait_until(lambda: scheduler.snapshot().running == 4)
    queued = b'{"messages":[{"role":"user","content":"x"}]}'
    send_and_hang_up(url, queued, after=lambda: scheduler.snapshot().waiting == 1, read=False)
    wait_until(lambda: scheduler.snapshot().waiting == 0, timeout_s=3.0)
    first.join()
