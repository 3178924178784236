"""Errors on the wire, in OpenAI's shape: {"error": {"message", "type", "param", "code"}}."""

from __future__ import annotations

import json
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from starlette.responses import Response

from headstart.errors import HeadstartError, Overloaded, RequestError


def error_type(status: int) -> str:
    """The word OpenAI's API puts in `type` for an HTTP status."""
    if status == HTTPStatus.UNAUTHORIZED:
        return "authentication_error"
    if status == HTTPStatus.FORBIDDEN:
        return "permission_error"
    if status == HTTPStatus.NOT_FOUND:
        return "not_found_error"
    if status == HTTPStatus.SERVICE_UNAVAILABLE:
        return "overloaded_error"
    return "invalid_request_error" if status < HTTPStatus.INTERNAL_SERVER_ERROR else "server_error"


def error_body(
    message: str, status: int, *, param: str | None = None, code: str | None = None
) -> dict[str, Any]:
    """The JSON object of an error reply."""
    return {"error": {"message": message, "type": error_type(status), "param": param, "code": code}}


def error_response(
    message: str,
    status: int,
    *,
    param: str | None = None,
    code: str | None = None,
    headers: Mapping[str, str] | None = None,
) -> Response:
    """An error reply."""
    body = json.dumps(error_body(message, status, param=param, code=code), ensure_ascii=False)
    return Response(body.encode(), status, dict(headers or {}), "application/json")


def response_for(error: HeadstartError) -> Response:
    """The reply for an error headstart raised: a request's own status, 500 for the rest."""
    if not isinstance(error, RequestError):
        return error_response(str(error), HTTPStatus.INTERNAL_SERVER_ERROR, code="engine_error")
    headers = {"Retry-After": str(error.retry_after_s)} if isinstance(error, Overloaded) else {}
    return error_response(str(error), error.status, param=error.param, code=error.code, headers=headers)
