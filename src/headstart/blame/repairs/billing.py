"""Drops the billing line that Claude Code puts before its system prompt: it differs between sessions, and so
everything behind it is read again."""

from __future__ import annotations

import re
from typing import Any

from headstart.blame.exchange import Dialect
from headstart.blame.repairs.seen import Seen
from headstart.blame.repairs.system import rewritten

_LINE = re.compile(r"\Ax-anthropic-billing-header:[^\n]*(\n|\Z)")


def apply(dialect: Dialect, body: Any, seen: Seen) -> tuple[Any, tuple[str, ...]]:
    notes: list[str] = []

    def without(text: str, path: str) -> str | None:
        rest = _LINE.sub("", text, count=1)
        if rest == text:
            return text
        notes.append(f"dropped the billing line at {path}")
        return rest or None

    return rewritten(body, without), tuple(notes)
