"""What /v1/models and other JSON replies of servers say, read without trust in their form."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headstart.accept.servers import Answer, Http


def entries(answer: Answer, *path: str) -> list[Mapping[str, Any]]:
    """The objects in the list at `path`; empty where there is no such list."""
    found = answer.get(*path) if path else answer.body
    return [entry for entry in found if isinstance(entry, Mapping)] if isinstance(found, list) else []


def models(http: Http) -> list[Mapping[str, Any]]:
    """Entries of GET /v1/models."""
    return entries(http.get("/v1/models"), "data")


def pick(listed: list[Mapping[str, Any]], model: str | None, *keys: str) -> Mapping[str, Any]:
    """The entry that has `model` under one of `keys`; where no model is named, the only entry there is.
    Empty where neither is found."""
    if model is None:
        return listed[0] if len(listed) == 1 else {}
    return next((entry for entry in listed if model in [entry.get(key) for key in keys]), {})


def names(listed: list[Mapping[str, Any]], key: str = "id") -> tuple[str, ...]:
    return tuple(entry[key] for entry in listed if isinstance(entry.get(key), str))


def whole(value: Any) -> int | None:
    """A count; None for what is none (true and false included). Text that is a number counts."""
    if isinstance(value, str) and value.isdigit():
        return int(value)
    return int(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None


def words(**parts: Any) -> dict[str, str]:
    """Facts for a report: those that are known, as text."""
    return {name: str(value) for name, value in parts.items() if value is not None and value != ""}
