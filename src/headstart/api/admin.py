"""`/health` and `/metrics`: whether the server works, and how much."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse

from headstart.api.metrics import CONTENT_TYPE, ServerMetrics
from headstart.serving.models import ServedModel
from headstart.serving.scheduler import Scheduler


def router(served: ServedModel, scheduler: Scheduler, metrics: ServerMetrics) -> APIRouter:
    """The routes that tell about the server."""
    routes = APIRouter()

    @routes.get("/health")
    async def health(request: Request) -> Response:
        """`status` is "ok", or "stopped" (503) when the engine thread has ended: restart the server.

        Whoever has no key where one is needed learns the status alone.
        """
        alive = scheduler.alive
        answer: dict[str, Any] = {"status": "ok" if alive else "stopped"}
        if request.state.tenant is not None:
            snapshot = scheduler.snapshot()
            answer |= {
                "model": served.name,
                "context_tokens": served.layout.context_tokens,
                "running": snapshot.running,
                "waiting": snapshot.waiting,
                "idle_sequences": snapshot.idle_sequences,
            }
        return JSONResponse(answer, HTTPStatus.OK if alive else HTTPStatus.SERVICE_UNAVAILABLE)

    @routes.get("/metrics")
    async def prometheus() -> Response:
        """Prometheus' text format."""
        return Response(metrics.render(), media_type=CONTENT_TYPE)

    return routes
