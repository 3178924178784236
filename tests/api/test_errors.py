"""Errors in OpenAI's shape, with the status and headers that belong to them."""

from __future__ import annotations

import json

import pytest

from headstart.api.errors import error_response, error_type, response_for
from headstart.errors import EngineError, Overloaded, RequestError


def test_a_request_error_keeps_its_status_param_and_code() -> None:
    response = response_for(RequestError("too long", param="prompt", code="context_length_exceeded"))
    assert response.status_code == 400
    assert json.loads(response.body) == {
        "error": {
            "message": "too long",
            "type": "invalid_request_error",
            "param": "prompt",
            "code": "context_length_exceeded",
        }
    }


def test_overload_says_when_to_try_again() -> None:
    response = response_for(Overloaded("full", retry_after_s=7))
    assert (response.status_code, response.headers["retry-after"]) == (503, "7")


def test_an_engine_error_is_a_500() -> None:
    assert response_for(EngineError("lost")).status_code == 500


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, "invalid_request_error"),
        (401, "authentication_error"),
        (403, "permission_error"),
        (404, "not_found_error"),
        (413, "invalid_request_error"),
        (500, "server_error"),
        (503, "overloaded_error"),
    ],
)
def test_types(status: int, kind: str) -> None:
    assert error_type(status) == kind


def test_text_is_utf8_and_not_escaped() -> None:
    assert "größer" in bytes(error_response("größer", 400).body).decode()
