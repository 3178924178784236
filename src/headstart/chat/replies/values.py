"""Texts that stand for values: by the JSON schema of a parameter, what a model's plain text means."""

from __future__ import annotations

import ast
import json
import math
from collections.abc import Mapping
from typing import Any

_BY_TYPE = {str: "string", bool: "boolean", int: "integer", float: "number", type(None): "null"}
_WORDS = {"true": True, "false": False, "null": None, "none": None}


def json_text(value: Any) -> str:
    """JSON as the argument texts have it: blanks after commas and colons, no escapes without need."""
    return json.dumps(value, ensure_ascii=False)


def property_schema(schema: Any, name: str) -> Any:
    """The schema of one parameter; {} where nothing is said about it."""
    properties = schema.get("properties") if isinstance(schema, Mapping) else None
    found = properties.get(name) if isinstance(properties, Mapping) else None
    return found if isinstance(found, Mapping) else {}


def types_of(schema: Any, depth: int = 0) -> frozenset[str]:  # noqa: PLR0911 - a case a line
    """The JSON types that `schema` names; empty where it leaves them open."""
    if not isinstance(schema, Mapping) or depth > 8:
        return frozenset()
    kind = schema.get("type")
    if isinstance(kind, str):
        return frozenset({kind})
    if isinstance(kind, list):
        return frozenset(each for each in kind if isinstance(each, str))
    if isinstance(schema.get("enum"), list):
        return frozenset(_BY_TYPE.get(type(value), "object") for value in schema["enum"])
    if "const" in schema:
        return frozenset({_BY_TYPE.get(type(schema["const"]), "object")})
    found: frozenset[str] = frozenset()
    for choice in ("anyOf", "oneOf"):
        for part in schema.get(choice) or ():
            types = types_of(part, depth + 1)
            if not types:
                return frozenset()
            found |= types
    return found


def is_text(schema: Any) -> bool:
    """Whether every text is a value just as it stands."""
    return types_of(schema) == {"string"}


def value_of(text: str, schema: Any) -> Any:
    """The value that `text` stands for; the text itself where no type of the schema fits it."""
    types = types_of(schema)
    if types == {"string"}:
        return text
    value = _parsed(text.strip(), not types or bool(types & {"object", "array"}))
    if value is _NONE:
        return text
    if isinstance(value, float) and value.is_integer() and "integer" in types and "number" not in types:
        value = int(value)
    return value if not types or _fits(value, types) else text


_NONE = object()


def _parsed(text: str, containers: bool) -> Any:
    if text.lower() in _WORDS:
        return _WORDS[text.lower()]
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        if not containers or text[:1] not in ("{", "["):
            return _NONE
        try:
            value = ast.literal_eval(text)
            json.dumps(value, allow_nan=False)
        except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
            return _NONE
    if isinstance(value, float) and not math.isfinite(value):
        return _NONE
    return _NONE if isinstance(value, str) else value


def _fits(value: Any, types: frozenset[str]) -> bool:
    if isinstance(value, dict):
        return "object" in types
    if isinstance(value, list):
        return "array" in types
    kind = _BY_TYPE.get(type(value), "")
    return kind in types or (kind == "integer" and "number" in types)
