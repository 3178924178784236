"""Anthropic's Messages API: /v1/messages and /v1/messages/count_tokens."""

from __future__ import annotations

import time
import uuid
from dataclasses import replace

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse

from headstart.api.answering import answered
from headstart.api.anthropic_errors import AnthropicRoute
from headstart.api.anthropic_parse import message_work, prompt_of
from headstart.api.anthropic_stream import Answer, stream_reply, whole_reply
from headstart.api.anthropic_types import MessageCountRequest, MessageRequest
from headstart.api.chat_prompt import chat_prompt
from headstart.api.generation import Generation
from headstart.api.offload import offload
from headstart.api.openai_parse import parse
from headstart.api.request_log import RequestLog
from headstart.api.work import Entry
from headstart.serving.models import ServedModel

__all__ = ["router"]


def router(model: ServedModel, requests: RequestLog) -> APIRouter:
    """The routes that serve `model`. `requests` gets every request's report."""
    routes = APIRouter(route_class=AnthropicRoute)

    @routes.post("/v1/messages")
    async def messages(http: Request) -> Response:
        body = await http.body()
        arrived_s = time.perf_counter()
        tenant = str(getattr(http.state, "tenant", ""))
        work = await offload(body, lambda: message_work(model, parse(MessageRequest, body), tenant))
        answer = Answer(model, work, Entry(requests, f"msg_{uuid.uuid4().hex}", tenant))
        generation = Generation(model, http, arrived_s)
        return await answered(
            generation,
            work,
            lambda ready: stream_reply(answer, generation, ready),
            lambda: whole_reply(answer, generation),
            {"Request-Id": answer.entry.request_id, "X-Request-Id": answer.entry.request_id},
        )

    @routes.post("/v1/messages/count_tokens")
    async def count_tokens(http: Request) -> JSONResponse:
        body = await http.body()

        def count() -> int:
            asked, _ = prompt_of(model, parse(MessageCountRequest, body))
            asked = replace(asked, tenant=str(getattr(http.state, "tenant", "")))
            return len(chat_prompt(model, asked).tokens)

        return JSONResponse({"input_tokens": await offload(body, count)})

    return routes
