"""OpenAI's Responses API: /v1/responses, and the responses that are kept for the next request."""

from __future__ import annotations

import time
import uuid
from typing import Any

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse

from headstart.api.answering import answered
from headstart.api.generation import Generation
from headstart.api.offload import offload
from headstart.api.openai_errors import OpenAIRoute
from headstart.api.openai_parse import parse
from headstart.api.request_log import RequestLog
from headstart.api.responses_parse import items_of, response_work
from headstart.api.responses_store import Store, Stored
from headstart.api.responses_stream import Answer, stream_reply, whole_reply
from headstart.api.responses_types import ResponseRequest
from headstart.api.work import Entry
from headstart.errors import RequestError
from headstart.serving.models import ServedModel

__all__ = ["router"]


def router(model: ServedModel, requests: RequestLog) -> APIRouter:
    """The routes that serve `model`. `requests` gets every request's report."""
    routes = APIRouter(route_class=OpenAIRoute)
    store = Store()

    @routes.post("/v1/responses")
    async def create(http: Request) -> Response:
        body = await http.body()
        arrived_s = time.perf_counter()
        tenant = _tenant(http)
        asked = parse(ResponseRequest, body)
        before = _before(store, asked, tenant)
        items = (*before, *items_of(asked))
        work = await offload(body, lambda: response_work(model, asked, items, tenant))
        entry = Entry(requests, f"resp_{uuid.uuid4().hex}", tenant)
        answer = Answer(model, asked, items, work, entry, store)
        generation = Generation(model, http, arrived_s)
        return await answered(
            generation,
            work,
            lambda ready: stream_reply(answer, generation, ready),
            lambda: whole_reply(answer, generation),
            {"X-Request-Id": entry.request_id},
        )

    @routes.get("/v1/responses/{response_id}")
    async def get(response_id: str, http: Request) -> Response:
        kept = _kept(store, response_id, _tenant(http))
        return Response(kept.response, media_type="application/json")

    @routes.delete("/v1/responses/{response_id}")
    async def delete(response_id: str, http: Request) -> JSONResponse:
        _kept(store, response_id, _tenant(http))
        store.remove(response_id, _tenant(http))
        return JSONResponse({"id": response_id, "object": "response", "deleted": True})

    return routes


def _before(store: Store, asked: ResponseRequest, tenant: str) -> tuple[dict[str, Any], ...]:
    """What a stored response had said and been told."""
    if asked.previous_response_id is None:
        return ()
    return _kept(store, asked.previous_response_id, tenant).items()


def _kept(store: Store, response_id: str, tenant: str) -> Stored:
    found = store.get(response_id, tenant)
    if found is None:
        raise RequestError(
            f"there is no response {response_id[:80]!r}: it was not stored, is another key's, or too long "
            "ago to be kept; send the whole conversation as input",
            status=404,
            param="previous_response_id",
            code="previous_response_not_found",
        )
    return found


def _tenant(http: Request) -> str:
    return str(getattr(http.state, "tenant", ""))
