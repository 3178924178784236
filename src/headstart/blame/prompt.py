"""A request body taken apart: what it says, piece by piece, each with its place in the JSON.

Pieces stand in the order in which most templates render them (tools and system first, then messages in
order), whatever dialect the body is in. What never reaches a prompt (ids, cache markers, sampling) is no
piece.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from headstart.blame.exchange import Dialect


class Kind(StrEnum):
    """What a piece is."""

    TOOL = "tool"
    SYSTEM = "system"
    TEXT = "text"
    THINKING = "thinking"
    CALL = "call"
    RESULT = "result"
    MEDIA = "media"


@dataclass(frozen=True)
class Piece:
    """`path`: its place, as `messages[3].content[0].text`. `text`: what it says; of a tool its canonical JSON
    in the client's key order, of a call its arguments as text, of media a digest. `message`: index of the
    message it belongs to, None for tools and a system field of its own. `role`: system, developer, user,
    assistant or tool. `name`: of a tool or call. `id`: of a call or result. `raw`: the JSON at `path`."""

    kind: Kind
    path: str
    text: str
    role: str = ""
    message: int | None = None
    name: str = ""
    id: str = ""
    raw: Any = field(default=None, compare=False)


@dataclass(frozen=True)
class Prompt:
    """`options`: the body's other top-level fields that could change what the server does with the prompt
    (num_ctx, reasoning effort, keep_alive, ...). `shape`: for every message whether its content was a string
    or blocks, which changes nothing once rendered."""

    dialect: Dialect
    model: str
    pieces: tuple[Piece, ...]
    options: Mapping[str, Any] = field(default_factory=dict)
    shape: tuple[str, ...] = ()

    @property
    def chars(self) -> int:
        return sum(len(piece.text) for piece in self.pieces)
