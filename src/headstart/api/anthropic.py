"""Anthropic's Messages API: /v1/messages and /v1/messages/count_tokens."""

from __future__ import annotations

import time
import uuid

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse

from headstart.api.anthropic_errors import AnthropicRoute
from headstart.api.anthropic_parse import message_work, prompt_of
from headstart.api.anthropic_stream import Answer, stream_reply, whole_reply
from headstart.api.anthropic_types import MessageCountRequest, MessageRequest
from headstart.api.chat_prompt import chat_prompt
from headstart.api.generation import ClientGoneError, Generation
from headstart.api.offload import offload
from headstart.api.openai_errors import GONE
from headstart.api.openai_parse import parse
from headstart.api.openai_stream import EARLY_FAILURE_S
from headstart.api.request_log import RequestLog
from headstart.api.sse import EventStream
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
        return await _answered(answer, Generation(model, http, arrived_s))

    @routes.post("/v1/messages/count_tokens")
    async def count_tokens(http: Request) -> JSONResponse:
        body = await http.body()

        def count() -> int:
            asked, _ = prompt_of(model, parse(MessageCountRequest, body))
            return len(chat_prompt(model, asked)[0])

        return JSONResponse({"input_tokens": await offload(body, count)})

    return routes


async def _answered(answer: Answer, generation: Generation) -> Response:
    headers = {"Request-Id": answer.entry.request_id, "X-Request-Id": answer.entry.request_id}
    try:
        generation.submit(answer.work.requests)
        if answer.work.stream:
            ready = await generation.news(EARLY_FAILURE_S)
            response: Response = EventStream(stream_reply(answer, generation, ready), generation.close)
            response.headers.update(headers)
            return response
        reply = await whole_reply(answer, generation)
    except ClientGoneError:
        generation.close()
        return Response(status_code=GONE)
    except BaseException:
        generation.close()
        raise
    generation.close()
    return JSONResponse(reply, headers=headers)
