"""What is known of a conversation before a request: what repairs go by."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from headstart.blame.exchange import ToolCall


@dataclass(frozen=True)
class Seen:
    """`tools`: their names in the order in which they first came. `calls`: those the model generated, by
    the letters and digits of their id; several where a server gave an id twice. `before`: the last body, as
    it was sent on. `dated`: lines of the system prompt that tell a date or time, as they first were, by the
    line without it.
    """

    tools: tuple[str, ...] = ()
    calls: Mapping[str, Sequence[ToolCall]] = field(default_factory=dict)
    before: Any = None
    dated: Mapping[str, str] = field(default_factory=dict)


def plain_id(text: Any) -> str:
    """An id without what clients strip from it."""
    return "".join(char for char in text if char.isalnum()) if isinstance(text, str) else ""


def objects(value: Any) -> list[tuple[int, dict[str, Any]]]:
    """The objects of a list with their places in it."""
    items = value if isinstance(value, list) else ()
    return [(place, item) for place, item in enumerate(items) if isinstance(item, dict)]


def messages_key(body: Mapping[str, Any]) -> str:
    """The field that holds the messages."""
    return "messages" if isinstance(body.get("messages"), list) else "input"


def with_item(items: Sequence[Any], place: int, item: Any) -> list[Any]:
    """`items` with another one at `place`."""
    return [*items[:place], item, *items[place + 1 :]]
