"""What whoever starts the server has decided about chats, in place of what the template says."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["ChatChoices"]


@dataclass(frozen=True)
class ChatChoices:
    """`tool_parser`, `reasoning_parser`: names of formats in `replies.syntax`; None goes by the template's
    markers. `preserve_thinking`: whether thoughts of earlier turns are kept, where the template can; None as
    it says. `tools_as_sent`: tools keep the order they come in. `literal`: replies
    that come back are read as they are written."""

    tool_parser: str | None = None
    reasoning_parser: str | None = None
    preserve_thinking: bool | None = None
    tools_as_sent: bool = False
    literal: bool = False
