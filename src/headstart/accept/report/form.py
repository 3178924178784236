"""The form of results.json: its JSON Schema, and the way back from JSON to Results."""

from __future__ import annotations

import types
import typing
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from pathlib import Path
from typing import Any

from headstart.accept.report.results import FORMAT, Results

SCHEMA = Path(__file__).with_name("schema.json")
_PLAIN: Mapping[Any, str] = {
    int: "integer",
    float: "number",
    str: "string",
    bool: "boolean",
    type(None): "null",
}


def from_json(data: Mapping[str, Any]) -> Results:
    """The results `data` holds. Raises ValueError, naming the place, where it does not follow the
    schema, and for another `format`."""
    if data.get("format") != FORMAT:
        raise ValueError(f"format is {data.get('format')!r}; this version reads format {FORMAT}")
    made = _build(Results, data, "results")
    assert isinstance(made, Results)
    return made


def schema() -> dict[str, Any]:
    """JSON Schema (draft 2020-12) of results.json."""
    definitions: dict[str, Any] = {}
    root = _describe(Results, definitions)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "headstart accept results",
        **root,
        "$defs": definitions,
    }


def _options(kind: Any) -> tuple[Any, ...]:
    """The members of a union; the kind itself where it is none."""
    return typing.get_args(kind) if isinstance(kind, types.UnionType) else (kind,)


def _describe(kind: Any, definitions: dict[str, Any]) -> dict[str, Any]:
    members = _options(kind)
    if len(members) > 1:
        parts = [_describe(member, definitions) for member in members]
        simple = all(set(part) == {"type"} for part in parts)
        return {"type": [part["type"] for part in parts]} if simple else {"anyOf": parts}
    if kind in _PLAIN:
        return {"type": _PLAIN[kind]}
    if isinstance(kind, type) and issubclass(kind, Enum):
        return {"enum": [member.value for member in kind]}
    if is_dataclass(kind):
        return _describe_entry(kind, definitions)
    arguments = typing.get_args(kind)
    if issubclass(typing.get_origin(kind), Mapping):
        return {"type": "object", "additionalProperties": _describe(arguments[1], definitions)}
    return {"type": "array", "items": _describe(arguments[0], definitions)}


def _describe_entry(kind: Any, definitions: dict[str, Any]) -> dict[str, Any]:
    name = kind.__name__
    if name not in definitions:
        definitions[name] = {}
        hints = typing.get_type_hints(kind)
        definitions[name] = {
            "type": "object",
            "properties": {f.name: _describe(hints[f.name], definitions) for f in fields(kind)},
            "required": [f.name for f in fields(kind)],
            "additionalProperties": False,
        }
    return {"$ref": f"#/$defs/{name}"}


def _build(kind: Any, value: Any, where: str) -> Any:
    members = _options(kind)
    if len(members) > 1:
        return _build_one_of(members, value, where)
    if is_dataclass(kind):
        return _build_entry(kind, value, where)
    if isinstance(kind, type) and issubclass(kind, Enum):
        return _build_member(kind, value, where)
    if kind in _PLAIN:
        return _build_plain(kind, value, where)
    arguments = typing.get_args(kind)
    if issubclass(typing.get_origin(kind), Mapping):
        if not isinstance(value, Mapping):
            raise ValueError(f"{where}: expected an object, found {_brief(value)}")
        return {key: _build(arguments[1], item, f"{where}.{key}") for key, item in value.items()}
    if not isinstance(value, list):
        raise ValueError(f"{where}: expected a list, found {_brief(value)}")
    return tuple(_build(arguments[0], item, f"{where}[{at}]") for at, item in enumerate(value))


def _build_one_of(members: tuple[Any, ...], value: Any, where: str) -> Any:
    if value is None and type(None) in members:
        return None
    rest = [member for member in members if member is not type(None)]
    if len(rest) == 1:
        return _build(rest[0], value, where)
    if any(type(value) is member for member in rest):
        return value
    raise ValueError(f"{where}: {_brief(value)} is of no kind that may stand here")


def _build_member(kind: type[Enum], value: Any, where: str) -> Any:
    try:
        return kind(value)
    except ValueError:
        known = ", ".join(str(member.value) for member in kind)
        raise ValueError(f"{where}: {_brief(value)} is none of {known}") from None


def _build_plain(kind: Any, value: Any, where: str) -> Any:
    if kind is float and type(value) is int:
        return float(value)
    if type(value) is not kind:
        raise ValueError(f"{where}: expected {kind.__name__}, found {_brief(value)}")
    return value


def _build_entry(kind: Any, value: Any, where: str) -> Any:
    if not isinstance(value, Mapping):
        raise ValueError(f"{where}: expected an object, found {_brief(value)}")
    hints = typing.get_type_hints(kind)
    names = [f.name for f in fields(kind)]
    for name in names:
        if name not in value:
            raise ValueError(f"{where}: {name} is missing")
    for name in value:
        if name not in names:
            raise ValueError(f"{where}: {name} is not a field of this format")
    return kind(**{name: _build(hints[name], value[name], f"{where}.{name}") for name in names})


def _brief(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:59] + "…"
