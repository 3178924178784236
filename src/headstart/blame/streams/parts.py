"""What has been put together of a reply so far; the dialects add to it."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from headstart.blame.exchange import Reply, ToolCall, Usage


@dataclass
class OpenCall:
    """A tool call of which more may come."""

    id: str = ""
    name: str = ""
    arguments: list[str] = field(default_factory=list)
    exact: bool = True

    def add(self, arguments: Any) -> bool:
        """Adds a piece of the arguments, or all of them as an object. Whether it said anything."""
        if isinstance(arguments, str):
            self.arguments.append(arguments)
            return bool(arguments)
        if arguments is None:
            return False
        self.arguments = [as_json(arguments)]
        self.exact = False
        return True


@dataclass
class Parts:
    """`done`: the stream's own end was seen. `server`: what the payloads look like they come from."""

    text: list[str] = field(default_factory=list)
    thinking: list[str] = field(default_factory=list)
    calls: dict[Any, OpenCall] = field(default_factory=dict)
    finish: str | None = None
    usage: Usage = field(default_factory=Usage)
    prefill_s: float | None = None
    load_s: float | None = None
    server: str | None = None
    done: bool = False
    error: str | None = None

    def say(self, value: Any) -> bool:
        return _added(self.text, value)

    def think(self, value: Any) -> bool:
        return _added(self.thinking, value)

    def call(self, key: Any) -> OpenCall:
        return self.calls.setdefault(key, OpenCall())

    def fail(self, problem: Any) -> None:
        """Keeps the first problem, in one line."""
        if self.error is None:
            self.error = said(problem)

    @property
    def reply(self) -> Reply:
        return Reply(
            text="".join(self.text),
            thinking="".join(self.thinking),
            calls=tuple(
                ToolCall(one.id, one.name, "".join(one.arguments), one.exact) for one in self.calls.values()
            ),
            finish=self.finish,
        )


def _added(pieces: list[str], value: Any) -> bool:
    if not isinstance(value, str) or not value:
        return False
    pieces.append(value)
    return True


def as_json(value: Any) -> str:
    """`value` as compact JSON, keys in their order."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def said(problem: Any) -> str:
    """The message in an error payload, whatever its shape."""
    if isinstance(problem, dict):
        for name in ("error", "message", "detail"):
            if problem.get(name):
                return said(problem[name])
    text = problem if isinstance(problem, str) else as_json(problem)
    return " ".join(text.split())[:500]


def word(value: Any) -> str:
    """`value` where it is text, else ""."""
    return value if isinstance(value, str) else ""
