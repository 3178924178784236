"""JSON that says the same with its keys in another order."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from headstart.blame.causes.context import Context, found, short
from headstart.blame.finding import Change, Finding, Fix, Step
from headstart.blame.prompt import Kind, Piece

CODE = "KEY_ORDER"
PLAIN = (
    "A tool's schema or a call's arguments are the same JSON with the keys in another order. Templates write "
    "keys as they come, so the prompt parts there though nothing was changed."
)
FIX = Fix("Serialise JSON with one fixed key order: keep the order of first sending, or sort the keys.")
# Lists that are sets: their order says nothing.
_SETS = ("required", "enum", "type")


def detect(change: Change | None, context: Context) -> Finding | None:
    if change is None or context.step is not Step.BODY:
        return None
    before, after = change.before, change.after
    if before is None or after is None or before.kind is not after.kind:
        return None
    if after.kind not in (Kind.TOOL, Kind.CALL) or before.name != after.name or before.text == after.text:
        return None
    one, other = parsed(before), parsed(after)
    place = reordered(one, other)
    if place is None:
        return None
    where = f"{after.path}{place}".removesuffix(".")
    was, now = _keys(one, place), _keys(other, place)
    return found(CODE, change, context, f"keys in another order at {where}: {was} -> {now}", FIX)


def parsed(piece: Piece) -> Any:
    """The JSON of a tool or call; None where its text is none."""
    try:
        return json.loads(piece.text)
    except ValueError:
        return None


def reordered(one: Any, other: Any, path: str = "") -> str | None:
    """Where the first keys stand in another order, if both say the same; None where they do not."""
    if not same(one, other):
        return None
    return _first(one, other, path)


def same(one: Any, other: Any, name: str = "") -> bool:
    """Whether two JSON values say the same, whatever the order of keys and of lists that are sets."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key], key) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        if len(one) != len(other):
            return False
        if name in _SETS and sorted(map(repr, one)) == sorted(map(repr, other)):
            return True
        return all(same(left, right) for left, right in zip(one, other, strict=True))
    return type(one) is type(other) and bool(one == other)


def _first(one: Any, other: Any, path: str) -> str | None:
    if isinstance(one, Mapping):
        if list(one) != list(other):
            return path or "."
        pairs = [(f"{path}.{key}", one[key], other[key]) for key in one]
    elif isinstance(one, list):
        if one != other and sorted(map(repr, one)) == sorted(map(repr, other)):
            return path
        pairs = [(f"{path}[{place}]", one[place], other[place]) for place in range(len(one))]
    else:
        return None
    return next((place for where, left, right in pairs if (place := _first(left, right, where))), None)


def _keys(value: Any, path: str) -> str:
    for part in path.replace("[", ".[").split("."):
        if part.startswith("["):
            value = value[int(part[1:-1])]
        elif part:
            value = value.get(part, {}) if isinstance(value, Mapping) else value
    return short(", ".join(map(str, value)))
