"""The OpenAI API: chat, completions and models."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse
from starlette.concurrency import run_in_threadpool

from headstart.api.answering import answered
from headstart.api.generation import Generation
from headstart.api.no_embeddings import NO_EMBEDDINGS
from headstart.api.offload import offload
from headstart.api.openai_errors import OpenAIRoute
from headstart.api.openai_parse import chat_work, completion_work, parse
from headstart.api.openai_replies import CHAT, TEXT, Form
from headstart.api.openai_stream import Exchange, stream_reply, whole_reply
from headstart.api.openai_types import ChatRequest, CompletionRequest
from headstart.api.request_log import RequestLog, describe, listed
from headstart.api.work import Work
from headstart.errors import RequestError
from headstart.serving.models import ServedModel


def router(model: ServedModel, requests: RequestLog) -> APIRouter:
    """The routes that serve `model`. The tenant of a request is `request.state.tenant`, "" if unset.
    `requests` gets every request's report."""
    routes = APIRouter(route_class=OpenAIRoute)

    @routes.post("/v1/chat/completions")
    async def chat_completions(http: Request) -> Response:
        def prepare(body: bytes) -> Work:
            return chat_work(model, parse(ChatRequest, body), _tenant(http))

        return await _complete(model, CHAT, http, prepare, requests)

    @routes.post("/v1/completions")
    async def completions(http: Request) -> Response:
        def prepare(body: bytes) -> Work:
            return completion_work(model, parse(CompletionRequest, body), _tenant(http))

        return await _complete(model, TEXT, http, prepare, requests)

    @routes.post("/v1/embeddings")
    async def embeddings() -> Response:
        # A 404 and not a 501: OpenAI's SDKs send what ended in a 5xx again, twice.
        raise RequestError(NO_EMBEDDINGS, status=404, param="model", code="embeddings_not_supported")

    @routes.get("/v1/models")
    async def models() -> JSONResponse:
        return JSONResponse({"object": "list", "data": [model_json(model)]})

    @routes.get("/v1/models/{name:path}")
    async def one_model(name: str) -> JSONResponse:
        if name != model.name:
            raise RequestError(
                f"no such model; this server has {model.name}",
                status=404,
                param="model",
                code="model_not_found",
            )
        return JSONResponse(model_json(model))

    @routes.get("/v1/headstart/requests")
    async def request_reports(http: Request) -> JSONResponse:
        return JSONResponse(listed(requests.all(_tenant(http))))

    @routes.get("/v1/headstart/requests/{request_id}")
    async def request_report(request_id: str, http: Request) -> JSONResponse:
        found = requests.get(request_id, _tenant(http))
        if found is None:
            raise RequestError(
                "no such request: it is another key's, still running, or too long ago to be kept",
                status=404,
                code="request_not_found",
            )
        return JSONResponse(await run_in_threadpool(describe, model, found))

    return routes


async def _complete(
    model: ServedModel, form: Form, http: Request, prepare: Callable[[bytes], Work], requests: RequestLog
) -> Response:
    body = await http.body()
    arrived_s = time.perf_counter()
    work = await offload(body, lambda: prepare(body))
    exchange = Exchange(
        model, form, work, request_id=form.id_prefix + uuid.uuid4().hex, tenant=_tenant(http), log=requests
    )
    generation = Generation(model, http, arrived_s)
    return await answered(
        generation,
        work,
        lambda ready: stream_reply(exchange, generation, ready),
        lambda: whole_reply(exchange, generation),
        {"X-Request-Id": exchange.request_id},
    )


def _tenant(http: Request) -> str:
    return str(getattr(http.state, "tenant", ""))


def model_json(model: ServedModel) -> dict[str, Any]:
    """A model as /v1/models lists it, with what was found out about it when it was loaded."""
    facts = model.engine_facts
    return {
        "id": model.name,
        "object": "model",
        "created": model.created,
        "owned_by": "headstart",
        "max_model_len": model.layout.context_tokens,
        "headstart": {
            "engine": facts.engine,
            "model_name": facts.model_name,
            "architecture": facts.architecture,
            "parameters": facts.parameters,
            "adapters": [asdict(adapter) for adapter in facts.adapters],
            "context_tokens": model.layout.context_tokens,
            "vocab_size": model.layout.vocab_size,
            "state_bytes_per_token": model.layout.row_bytes,
            "checkpoint_bytes": model.layout.checkpoint_bytes,
            "window_tokens": model.layout.window_tokens,
            "state_proved": facts.state_proved,
            "exact_repeat": facts.exact_repeat,
            "restore_equals_cold": facts.restore_equals_cold,
            "speculate": model.speculate,
            "chat_template": model.template is not None,
            "notes": list(facts.notes),
        },
    }
