"""Errors in OpenAI's shape: {"error": {"message", "type", "param", "code"}}."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from fastapi import Request, Response
from fastapi.responses import JSONResponse
from fastapi.routing import APIRoute
from pydantic import ValidationError
from starlette.requests import ClientDisconnect

from headstart.errors import HeadstartError, Overloaded, RequestError

GONE = 499
"""The client closed the connection before it was answered (nginx's number); nobody reads it."""
_TYPES = {401: "authentication_error", 403: "permission_error", 503: "overloaded_error"}


def error_body(
    message: str, *, status: int, param: str | None = None, code: str | None = None
) -> dict[str, Any]:
    """The JSON object of an error answered with HTTP `status`."""
    kind = _TYPES.get(status, "invalid_request_error" if status < 500 else "server_error")
    return {"error": {"message": message, "type": kind, "param": param, "code": code}}


def body_of(error: HeadstartError) -> tuple[int, dict[str, Any]]:
    """HTTP status and JSON object for `error`."""
    if isinstance(error, RequestError):
        return error.status, error_body(str(error), status=error.status, param=error.param, code=error.code)
    return 500, error_body(str(error), status=500, code="engine_error")


def error_response(error: HeadstartError) -> JSONResponse:
    """`error` as an HTTP answer; Overloaded says when to come back in Retry-After."""
    status, body = body_of(error)
    headers = {"Retry-After": str(error.retry_after_s)} if isinstance(error, Overloaded) else None
    return JSONResponse(body, status_code=status, headers=headers)


class OpenAIRoute(APIRoute):
    """A route whose HeadstartErrors are answered in OpenAI's shape; clients may leave at any moment."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handler = super().get_route_handler()

        async def answer(request: Request) -> Response:
            try:
                return await handler(request)
            except HeadstartError as error:
                return error_response(error)
            except ClientDisconnect:
                return Response(status_code=GONE)

        return answer


def invalid_field(error: ValidationError) -> RequestError:
    """The first field pydantic refused, without the value that was sent."""
    first = error.errors(include_url=False, include_input=False, include_context=False)[0]
    param = _param(first["loc"])
    return RequestError(f"{param}: {first['msg']}" if param else first["msg"], param=param or None)


def _param(location: tuple[int | str, ...]) -> str:
    """`messages[2].role` from pydantic's location; the names of union branches are left out."""
    param = ""
    for step in location:
        if isinstance(step, int):
            param += f"[{step}]"
        elif step in ("str", "int", "float", "bool") or "[" in step or "-" in step:
            break
        else:
            param += f".{step}" if param else step
    return param
