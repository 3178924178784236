"""Ollama's API, as far as one model that is always loaded can speak it."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime
from typing import Any

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse, PlainTextResponse
from fastapi.routing import APIRoute
from starlette.requests import ClientDisconnect

from headstart import __version__
from headstart.api.answering import answered
from headstart.api.generation import Generation
from headstart.api.no_embeddings import NO_EMBEDDINGS
from headstart.api.offload import offload
from headstart.api.ollama_parse import chat_work, generate_work
from headstart.api.ollama_stream import (
    NDJSON,
    Answer,
    Part,
    chat_part,
    generate_part,
    loaded,
    stream_reply,
    whole_reply,
)
from headstart.api.ollama_types import ChatAsk, GenerateAsk, ShowAsk
from headstart.api.openai_errors import GONE
from headstart.api.openai_parse import parse
from headstart.api.request_log import RequestLog
from headstart.api.work import Entry, Work
from headstart.chat.abilities import abilities
from headstart.errors import HeadstartError, RequestError
from headstart.serving.models import ServedModel

__all__ = ["router"]

FOREVER = "9999-12-31T23:59:59Z"
"""When the model is let go: never, while the server runs."""
NOT_HERE = ("pull", "push", "create", "copy", "delete", "blobs/{digest}")
EMBEDDING = ("embed", "embeddings")


class OllamaRoute(APIRoute):
    """A route whose HeadstartErrors are answered as {"error": words}; clients may leave at any moment."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handler = super().get_route_handler()

        async def answer(request: Request) -> Response:
            try:
                return await handler(request)
            except HeadstartError as error:
                status = error.status if isinstance(error, RequestError) else 500
                return JSONResponse({"error": str(error)}, status_code=status)
            except ClientDisconnect:
                return Response(status_code=GONE)

        return answer


def router(model: ServedModel, requests: RequestLog) -> APIRouter:
    """The routes that serve `model`. `requests` gets every request's report."""
    routes = APIRouter(route_class=OllamaRoute)

    @routes.post("/api/chat")
    async def chat(http: Request) -> Response:
        body = await http.body()
        asked = parse(ChatAsk, body)
        if not asked.messages:
            return JSONResponse(loaded(model, chat_part, _reason(asked.keep_alive)))
        return await _reply(http, body, chat_part, lambda tenant: chat_work(model, asked, tenant))

    @routes.post("/api/generate")
    async def generate(http: Request) -> Response:
        body = await http.body()
        asked = parse(GenerateAsk, body)
        if not asked.prompt:
            return JSONResponse(loaded(model, generate_part, _reason(asked.keep_alive)))
        return await _reply(http, body, generate_part, lambda tenant: generate_work(model, asked, tenant))

    async def _reply(http: Request, body: bytes, part: Part, make: Callable[[str], Work]) -> Response:
        arrived_s = time.perf_counter()
        tenant = str(getattr(http.state, "tenant", ""))
        work = await offload(body, lambda: make(tenant))
        answer = Answer(model, work, Entry(requests, f"ollama-{uuid.uuid4().hex}", tenant), part)
        generation = Generation(model, http, arrived_s)
        return await answered(
            generation,
            work,
            lambda ready: stream_reply(answer, generation, ready),
            lambda: whole_reply(answer, generation),
            {"X-Request-Id": answer.entry.request_id},
            media_type=NDJSON,
        )

    @routes.get("/api/tags")
    async def tags() -> JSONResponse:
        return JSONResponse({"models": [{**_named(model), "modified_at": _time(model.created)}]})

    @routes.get("/api/ps")
    async def running() -> JSONResponse:
        loaded_now = {"context_length": model.layout.context_tokens, "size_vram": 0, "expires_at": FOREVER}
        return JSONResponse({"models": [{**_named(model), **loaded_now}]})

    @routes.post("/api/show")
    async def show(http: Request) -> JSONResponse:
        asked = parse(ShowAsk, await http.body())
        name = (asked.model or asked.name or model.name).removesuffix(":latest")
        if name != model.name:
            raise RequestError(f"model '{name[:100]}' not found; this server has {model.name}", status=404)
        return JSONResponse(_shown(model))

    @routes.get("/api/version")
    async def version() -> JSONResponse:
        return JSONResponse({"version": __version__})

    @routes.api_route("/", methods=["GET", "HEAD"], include_in_schema=False)
    async def root() -> PlainTextResponse:
        return PlainTextResponse("headstart is running")

    for path in NOT_HERE:
        methods = ["GET", "POST", "DELETE", "HEAD"]
        routes.add_api_route(f"/api/{path}", _not_here, methods=methods, include_in_schema=False)
    for path in EMBEDDING:
        routes.add_api_route(f"/api/{path}", _no_embedding, methods=["POST"], include_in_schema=False)
    return routes


async def _not_here(http: Request) -> Response:
    raise RequestError(
        f"{http.url.path} is not possible here: headstart serves one model for text; "
        "start it with --model to serve another",
        status=501,
    )


async def _no_embedding() -> Response:
    """As Ollama's own server answers for a model that cannot embed."""
    raise RequestError(NO_EMBEDDINGS, status=501)


def _reason(keep_alive: str | float | None) -> str:
    """Ollama's word for what a request without a prompt did. The model stays loaded either way."""
    return "unload" if keep_alive in (0, "0", "0s", "0m") else "load"


def _named(model: ServedModel) -> dict[str, Any]:
    return {
        "name": model.name,
        "model": model.name,
        "size": 0,
        "digest": model.fingerprint,
        "details": _details(model),
    }


def _details(model: ServedModel) -> dict[str, Any]:
    facts = model.engine_facts
    return {
        "parent_model": "",
        "format": "gguf" if facts.engine == "llamacpp" else facts.engine,
        "family": facts.architecture,
        "families": [facts.architecture],
        "parameter_size": _size(facts.parameters),
        "quantization_level": "",
    }


def _size(parameters: int) -> str:
    return f"{parameters / 1e9:.1f}B" if parameters >= 1e9 else f"{parameters / 1e6:.0f}M"


def _shown(model: ServedModel) -> dict[str, Any]:
    """`context_length` is the context that this server has, which agents go by."""
    facts, template = model.engine_facts, model.template
    known = None if template is None else abilities(template.source, bos=template.bos, eos=template.eos)
    can = ["completion"]
    if known is not None and known.tools:
        can.append("tools")
    if known is not None and known.thinking:
        can.append("thinking")
    return {
        "modelfile": "",
        "parameters": f"num_ctx {model.layout.context_tokens}",
        "template": "" if template is None else template.source,
        "details": _details(model),
        "model_info": {
            "general.architecture": facts.architecture,
            "general.parameter_count": facts.parameters,
            f"{facts.architecture}.context_length": model.layout.context_tokens,
        },
        "capabilities": can,
        "modified_at": _time(model.created),
    }


def _time(unix_s: int) -> str:
    return datetime.fromtimestamp(unix_s, UTC).isoformat().replace("+00:00", "Z")
