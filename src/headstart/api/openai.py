"""The OpenAI API: completions, models, and the tokenizer endpoints local servers have beside them."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from dataclasses import asdict
from typing import Any, TypeVar

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse
from starlette.concurrency import run_in_threadpool

from headstart.api.generation import ClientGoneError, Generation
from headstart.api.openai_errors import GONE, OpenAIRoute
from headstart.api.openai_parse import Work, chat_prompt, chat_work, check_tokens, completion_work, parse
from headstart.api.openai_replies import CHAT, TEXT, Form
from headstart.api.openai_stream import EARLY_FAILURE_S, Exchange, stream_reply, whole_reply
from headstart.api.openai_types import ChatRequest, CompletionRequest, DetokenizeRequest, TokenizeRequest
from headstart.api.request_log import RequestLog, describe
from headstart.api.sse import EventStream
from headstart.errors import RequestError
from headstart.serving.models import ServedModel

_INLINE_BYTES = 4096
"""Bodies up to this size are parsed and tokenized on the event loop; larger ones on a thread."""
Answer = TypeVar("Answer")


def router(model: ServedModel) -> APIRouter:
    """The routes that serve `model`. The tenant of a request is `request.state.tenant`, "" if unset."""
    routes = APIRouter(route_class=OpenAIRoute)
    requests = RequestLog()

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

    @routes.post("/tokenize")
    async def tokenize(http: Request) -> JSONResponse:
        body = await http.body()
        return JSONResponse(await _offload(body, lambda: _tokenize(model, parse(TokenizeRequest, body))))

    @routes.post("/detokenize")
    async def detokenize(http: Request) -> JSONResponse:
        asked = parse(DetokenizeRequest, await http.body())
        text = model.text_of(check_tokens(asked.tokens, model.layout.vocab_size, "tokens"))
        return JSONResponse({"content": text, "prompt": text})

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
    work = await _offload(body, lambda: prepare(body))
    exchange = Exchange(
        model, form, work, request_id=form.id_prefix + uuid.uuid4().hex, tenant=_tenant(http), log=requests
    )
    headers = {"X-Request-Id": exchange.request_id}
    generation = Generation(model, http, arrived_s)
    try:
        generation.submit(work.requests)
        if work.stream:
            ready = await generation.news(EARLY_FAILURE_S)
            response: Response = EventStream(stream_reply(exchange, generation, ready), generation.close)
            response.headers.update(headers)
            return response
        reply = await whole_reply(exchange, generation)
    except ClientGoneError:
        generation.close()
        return Response(status_code=GONE)
    except BaseException:
        generation.close()
        raise
    generation.close()
    return JSONResponse(reply, headers=headers)


async def _offload(body: bytes, work: Callable[[], Answer]) -> Answer:
    """Runs `work` here where it is small, on a worker thread where it would hold up other requests.

    Compiling a constraint may take a second, whatever the size of the body.
    """
    small = len(body) <= _INLINE_BYTES and b"response_format" not in body
    return work() if small else await run_in_threadpool(work)


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


def _tokenize(model: ServedModel, asked: TokenizeRequest) -> dict[str, Any]:
    """Token ids of a text (plain unless `add_special`) or of rendered messages."""
    text = asked.content if asked.content is not None else asked.prompt
    if asked.messages is not None and text is None:
        tokens, _, _ = chat_prompt(model, asked)
    elif text is not None:
        special = asked.parse_special is not False
        add = bool(asked.add_special or asked.add_special_tokens)
        tokens = model.tokenize(text, special=special, add_bos=add and model.vocabulary.adds_bos)
    else:
        raise RequestError(
            "send the text as content or prompt, or a conversation as messages", param="content"
        )
    ids = tokens.tolist()
    answer: dict[str, Any] = {"tokens": ids, "count": len(ids), "max_model_len": model.layout.context_tokens}
    if asked.with_pieces:
        pieces = model.vocabulary.pieces
        answer["tokens"] = [{"id": token, "piece": pieces[token].decode("utf-8", "replace")} for token in ids]
    return answer
