"""A served toy model behind the OpenAI routes, in process or behind a real HTTP server."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import uvicorn
from fastapi import FastAPI, Request
from fastapi.testclient import TestClient

from headstart.api.anthropic import router as anthropic_router
from headstart.api.ollama import router as ollama_router
from headstart.api.openai import router
from headstart.api.request_log import RequestLog
from headstart.api.responses import router as responses_router
from headstart.api.tokens import router as tokens_router
from headstart.chat.template import ChatTemplate
from headstart.engines.toy import ToyEngine
from headstart.serving.constraint import ConstraintCompiler
from headstart.serving.models import ServedModel
from headstart.serving.request import Event, GenerationRequest
from headstart.serving.scheduler import Scheduler
from headstart.serving.settings import SchedulerSettings

CONTEXT = 2048
SETTINGS = SchedulerSettings(ram_cache_bytes=64 << 20, block_tokens=16, prefill_chunk_tokens=64)


@contextmanager
def served_toy(engine: ToyEngine | None = None, **changes: Any) -> Iterator[ServedModel]:
    """A toy model with a running scheduler. `changes` are SchedulerSettings."""
    engine = engine or ToyEngine(context_tokens=CONTEXT)
    compiler = ConstraintCompiler(
        engine.vocabulary,
        engine.layout.vocab_size,
        lambda text: engine.tokenize(text, special=False, add_bos=False).tolist(),
    )
    scheduler = Scheduler(engine, replace(SETTINGS, **changes), compiler)
    scheduler.start()
    try:
        yield ServedModel(
            name="toy",
            engine_facts=engine.facts,
            layout=engine.layout,
            vocabulary=engine.vocabulary,
            tokenize=engine.tokenize,
            template=ChatTemplate(str(engine.facts.chat_template), bos="<|endoftext|>", eos="<|im_end|>"),
            scheduler=scheduler,
            constraints=compiler,
            created=1_700_000_000,
        )
    finally:
        scheduler.stop()


class Scripted:
    """Answers each request with the events `script` gives for it, at once, on the caller's thread."""

    def __init__(self, script: Callable[[GenerationRequest], list[Event]]) -> None:
        self.requests: list[GenerationRequest] = []
        self.cancelled: list[int] = []
        self._script = script

    def submit(self, request: GenerationRequest, sink: Callable[[Event], None]) -> int:
        self.requests.append(request)
        for event in self._script(request):
            sink(event)
        return len(self.requests) - 1

    def cancel(self, ticket: int) -> None:
        self.cancelled.append(ticket)


def app_for(model: ServedModel) -> FastAPI:
    """The routes; the tenant is taken from a header, as the guard would from a key."""
    app = FastAPI()
    requests = RequestLog()
    app.include_router(router(model, requests))
    app.include_router(responses_router(model, requests))
    app.include_router(anthropic_router(model, requests))
    app.include_router(ollama_router(model, requests))
    app.include_router(tokens_router(model))

    @app.middleware("http")
    async def tenant(request: Request, call_next: Any) -> Any:
        request.state.tenant = request.headers.get("x-tenant", "")
        return await call_next(request)

    return app


def client_for(model: ServedModel) -> TestClient:
    return TestClient(app_for(model))


@contextmanager
def http_server(app: FastAPI) -> Iterator[str]:
    """`app` behind uvicorn on a free port; gives the base URL."""
    listener = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(app, log_level="warning"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(10)
        listener.close()


def sse_events(text: str) -> list[Any]:
    """The data of every event; `[DONE]` stays a string. Comments are left out."""
    values = [line.removeprefix("data: ") for line in text.splitlines() if line.startswith("data: ")]
    return [value if value == "[DONE]" else json.loads(value) for value in values]


def wait_until(true: Callable[[], bool], timeout_s: float = 10.0) -> None:
    end_s = time.monotonic() + timeout_s
    while not true():
        assert time.monotonic() < end_s, "it did not happen in time"
        time.sleep(0.005)
