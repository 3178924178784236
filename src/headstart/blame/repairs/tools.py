"""Keeps tools in the order in which the conversation first had them; new ones come last."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from headstart.blame.exchange import Dialect
from headstart.blame.repairs.seen import Seen


def names(body: Any) -> tuple[str, ...] | None:
    """The tools' names in their order, () without tools; None where a name is missing or comes twice."""
    tools = body.get("tools") if isinstance(body, dict) else None
    found = [_name(tool) for tool in tools] if isinstance(tools, list) else []
    return None if None in found or len(set(found)) != len(found) else tuple(name or "" for name in found)


def known(before: Sequence[str], now: Sequence[str]) -> tuple[str, ...]:
    """The order after a request with the tools `now`."""
    return (*before, *(name for name in now if name not in set(before)))


def apply(dialect: Dialect, body: Any, seen: Seen) -> tuple[Any, tuple[str, ...]]:
    now = names(body)
    if not now or not seen.tools:
        return body, ()
    rank = {name: place for place, name in enumerate(known(seen.tools, now))}
    order = sorted(range(len(now)), key=lambda place: rank[now[place]])
    moved = sum(place != index for index, place in enumerate(order))
    if not moved:
        return body, ()
    tools = [body["tools"][place] for place in order]
    return {**body, "tools": tools}, (f"put {moved} of {len(now)} tools back in their first order",)


def _name(tool: Any) -> str | None:
    if not isinstance(tool, dict):
        return None
    function = tool.get("function")
    name = function.get("name") if isinstance(function, dict) else tool.get("name")
    # Tools that the server brings along have a type only.
    name = name or tool.get("server_label") or tool.get("type")
    return name if isinstance(name, str) else None
