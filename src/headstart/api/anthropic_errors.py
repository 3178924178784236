"""Errors in Anthropic's shape: {"type": "error", "error": {"type", "message"}} ("Errors" in its docs)."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from fastapi import Request, Response
from fastapi.responses import JSONResponse
from fastapi.routing import APIRoute
from starlette.requests import ClientDisconnect

from headstart.api.openai_errors import GONE
from headstart.errors import HeadstartError, Overloaded, RequestError

__all__ = ["AnthropicRoute", "error_body", "error_of"]

_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
}


def error_body(message: str, *, status: int) -> dict[str, Any]:
    """The JSON object of an error answered with HTTP `status`."""
    kind = _TYPES.get(status, "invalid_request_error" if status < 500 else "api_error")
    return {"type": "error", "error": {"type": kind, "message": message}}


def error_of(error: HeadstartError) -> tuple[int, dict[str, Any]]:
    """HTTP status and JSON object for `error`."""
    status = error.status if isinstance(error, RequestError) else 500
    return status, error_body(str(error), status=status)


class AnthropicRoute(APIRoute):
    """A route whose HeadstartErrors are answered in Anthropic's shape; clients may leave at any moment."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handler = super().get_route_handler()

        async def answer(request: Request) -> Response:
            try:
                return await handler(request)
            except HeadstartError as error:
                status, body = error_of(error)
                wait = {"Retry-After": str(error.retry_after_s)} if isinstance(error, Overloaded) else None
                return JSONResponse(body, status_code=status, headers=wait)
            except ClientDisconnect:
                return Response(status_code=GONE)

        return answer
