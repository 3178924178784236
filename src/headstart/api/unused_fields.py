"""A sentence in the reply for every field of a request that changes nothing here."""

from __future__ import annotations

from collections.abc import Container, Mapping
from typing import Any

from headstart.serving.models import ServedModel

__all__ = ["MAX_WARNINGS", "other_model", "unused_fields"]

MAX_WARNINGS = 16
"""Sentences that a reply has at most."""
_MOST_CHARS = 64


def other_model(model: ServedModel, name: str | None) -> list[str]:
    """Says so where another model was asked for."""
    if name is None or name == model.name:
        return []
    return [f"model: another model was asked for; {model.name} answered"]


def unused_fields(
    fields: Mapping[str, Any] | None, harmless: Container[str] = frozenset(), prefix: str = ""
) -> list[str]:
    """One sentence for each of the unknown `fields`. `harmless`: those that ask for no more than is done
    anyway; `prefix`: what they stand in."""
    return [
        f"{prefix}{name[:_MOST_CHARS]}: this field is not supported and was ignored"
        for name, value in (fields or {}).items()
        if value is not None and name not in harmless
    ]
