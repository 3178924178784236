"""The HTTP application: routers, errors in one shape, metrics, and the guard in front."""

from __future__ import annotations

from http import HTTPStatus

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from headstart import __version__
from headstart.api.admin import router as admin_router
from headstart.api.anthropic import router as anthropic_router
from headstart.api.auth import Guard, policy_of
from headstart.api.cache_admin import router as cache_router
from headstart.api.error_shapes import error_for
from headstart.api.metrics import ReplyCounter, ServerMetrics
from headstart.api.ollama import router as ollama_router
from headstart.api.openai import router as openai_router
from headstart.api.openai_errors import error_response
from headstart.api.openapi import document
from headstart.api.request_log import RequestLog
from headstart.api.responses import router as responses_router
from headstart.api.tokens import router as tokens_router
from headstart.config import Settings
from headstart.errors import HeadstartError
from headstart.serving.models import ServedModel
from headstart.serving.scheduler import Scheduler


def create_app(
    served: ServedModel, settings: Settings, *, scheduler: Scheduler, metrics: ServerMetrics
) -> FastAPI:
    """The application that serves `served` to those `settings` let in.

    `scheduler` is asked how it is, `metrics` what it has counted; requests go through `served`.
    """
    app = FastAPI(title="headstart", version=__version__, docs_url=None, redoc_url=None, openapi_url=None)
    app.include_router(admin_router(served, scheduler, metrics))
    requests = RequestLog()
    app.include_router(openai_router(served, requests))
    app.include_router(responses_router(served, requests))
    app.include_router(anthropic_router(served, requests))
    app.include_router(ollama_router(served, requests))
    app.include_router(tokens_router(served))
    app.include_router(cache_router(served, scheduler))
    told = document(app.routes)

    @app.get("/openapi.json", include_in_schema=False)
    async def openapi() -> JSONResponse:
        return JSONResponse(told)

    app.add_exception_handler(HeadstartError, _headstart_error)
    app.add_exception_handler(HTTPException, _http_error)
    app.add_exception_handler(RequestValidationError, _validation_error)
    app.add_exception_handler(Exception, _unexpected_error)
    app.add_middleware(Guard, policy=policy_of(settings))
    app.add_middleware(ReplyCounter, metrics=metrics)
    return app


async def _headstart_error(_: Request, error: Exception) -> Response:
    assert isinstance(error, HeadstartError)
    return error_response(error)


async def _http_error(request: Request, error: Exception) -> Response:
    """404, 405 and the like, saying what was asked for and, for 405, what the endpoint takes."""
    assert isinstance(error, HTTPException)
    asked = f"{request.method} {request.url.path}"
    message = error.detail
    if error.status_code == HTTPStatus.NOT_FOUND:
        message = f"there is no endpoint {asked}"
    elif error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
        message = f"{asked} is not possible; allowed here: {(error.headers or {}).get('Allow', 'nothing')}"
    return JSONResponse(
        error_for(request.url.path, message, status=error.status_code), error.status_code, error.headers
    )


async def _validation_error(request: Request, error: Exception) -> Response:
    """The first fault FastAPI found in a request, without the value that was sent."""
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    param = ".".join(str(step) for step in first["loc"] if step not in ("body", "query", "path"))
    message = f"{param}: {first['msg']}" if param else str(first["msg"])
    return JSONResponse(error_for(request.url.path, message, status=400, param=param or None), 400)


async def _unexpected_error(request: Request, __: Exception) -> Response:
    """A fault of the server's own, told without its traceback; the HTTP server logs it with."""
    message = "the server failed on this request; its log says why"
    return JSONResponse(error_for(request.url.path, message, status=500, code="internal_error"), 500)
