"""`/v1/headstart/cache`: what is stored, and what of a prompt would be restored.

Both answer for the caller's own tenant; neither changes anything, nor counts as a use.
"""

from __future__ import annotations

import asyncio
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse
from pydantic_core import from_json
from starlette.concurrency import run_in_threadpool

from headstart.api.openai_errors import OpenAIRoute
from headstart.api.openai_parse import chat_work, completion_work, parse
from headstart.api.openai_types import ChatRequest, CompletionRequest
from headstart.errors import RequestError
from headstart.prefix.cache import CacheStatistics
from headstart.serving.models import ServedModel
from headstart.serving.request import GenerationRequest
from headstart.serving.scheduler import Scheduler

PROBE_TIMEOUT_S = 60.0
"""The engine thread answers between two steps, which take far less."""


def router(served: ServedModel, scheduler: Scheduler) -> APIRouter:
    """The routes that tell about the cache. The tenant of a request is `request.state.tenant`."""
    routes = APIRouter(route_class=OpenAIRoute)

    @routes.get("/v1/headstart/cache")
    async def cache(http: Request) -> JSONResponse:
        return JSONResponse(
            {
                "model": served.name,
                "namespace": scheduler.namespace(_tenant(http)).hex(),
                **tiers_json(scheduler.snapshot().cache),
            }
        )

    @routes.post("/v1/headstart/cache/probe")
    async def probe(http: Request) -> JSONResponse:
        body, tenant = await http.body(), _tenant(http)
        request = await run_in_threadpool(lambda: probed(served, body, tenant))
        answer = asyncio.wrap_future(scheduler.probe(request))
        try:
            found = await asyncio.wait_for(answer, PROBE_TIMEOUT_S)
        except TimeoutError:
            raise RequestError("the engine thread is busy; try again", status=503) from None
        namespace = scheduler.namespace(tenant).hex()
        return JSONResponse({"model": served.name, "namespace": namespace, **found.to_json()})

    return routes


def probed(served: ServedModel, body: bytes, tenant: str) -> GenerationRequest:
    """The request that a chat or completions body comes to. Raises RequestError, also for several prompts."""
    try:
        data = from_json(body)
    except ValueError:
        data = None
    chat = isinstance(data, dict) and "messages" in data
    if chat:
        work = chat_work(served, parse(ChatRequest, body), tenant)
    else:
        work = completion_work(served, parse(CompletionRequest, body), tenant)
    if len(work.requests) != work.replies_a_prompt:
        raise RequestError("a probe is about one prompt; send them one at a time", param="prompt")
    return work.requests[0]


def tiers_json(statistics: CacheStatistics | None) -> dict[str, Any]:
    """What each tier holds, in bytes and entries; null for a tier that is off."""
    if statistics is None:
        return {"ram": None, "ssd": None}
    counts = statistics.counts
    ram = {
        "used_bytes": statistics.used_bytes,
        "limit_bytes": statistics.limit_bytes,
        "blocks": counts.blocks,
        "marks": counts.checkpoints + counts.logits,
    }
    ssd = statistics.ssd
    if ssd is None:
        return {"ram": ram, "ssd": None}
    names = ("used_bytes", "limit_bytes", "blocks", "marks", "waiting")
    return {"ram": ram, "ssd": {name: getattr(ssd, name) for name in names}}


def _tenant(http: Request) -> str:
    return str(getattr(http.state, "tenant", ""))
