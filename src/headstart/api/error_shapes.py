"""An error in the shape of the API that was asked, for what ends a request before its route does."""

from __future__ import annotations

from typing import Any

from headstart.api import anthropic_errors, openai_errors

__all__ = ["error_for"]

_ANTHROPIC = "/v1/messages"


def error_for(
    path: str, message: str, *, status: int, param: str | None = None, code: str | None = None
) -> dict[str, Any]:
    """The JSON object of an error answered with HTTP `status` to a request for `path`."""
    if path == _ANTHROPIC or path.startswith(f"{_ANTHROPIC}/"):
        return anthropic_errors.error_body(message, status=status)
    if path.startswith("/api/"):
        return {"error": message}
    return openai_errors.error_body(message, status=status, param=param, code=code)
