"""How the replies to one request are taken apart, and which control tokens that needs to see."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from headstart.chat.replies.events import Event, TextDelta
from headstart.chat.replies.harmony import CHANNEL, MESSAGE, HarmonySplitter
from headstart.chat.replies.splitter import Splitter, new_call_id
from headstart.chat.replies.syntax import Syntax
from headstart.engines.base import Vocabulary

__all__ = ["PLAIN", "ReplyFormat", "Splits", "is_harmony", "marking_tokens"]

# What is spelled like a part of a call or of thoughts, in the templates that `syntax` knows.
_MARKING = re.compile(r'tool|think|python_tag|channel|function|escape|\[ARGS\]|\[CALL_ID\]|<\|"\|>', re.I)
_HARMONY = frozenset({"<|start|>", "<|channel|>", "<|message|>", "<|end|>", "<|constrain|>"})


class Splits(Protocol):
    """Takes the text of one reply apart as it comes. `warnings`: what went wrong in it."""

    @property
    def warnings(self) -> list[str]: ...

    def feed(self, text: str) -> list[Event]: ...

    def end(self) -> list[Event]: ...


class _Text:
    """All of it is text."""

    warnings: list[str] = []  # noqa: RUF012 - nothing is ever added

    def feed(self, text: str) -> list[Event]:
        return [TextDelta(text)] if text else []

    def end(self) -> list[Event]:
        return []


@dataclass(frozen=True)
class ReplyFormat:
    """`tools`: the arguments' schema of each tool that may be called; with none, calls are text. `thinking`:
    the prompt ends inside the thoughts."""

    syntax: Syntax = field(default_factory=Syntax)
    tools: Mapping[str, Any] = field(default_factory=dict)
    thinking: bool = False
    harmony: bool = False

    def splitter(self, *, hold: bool) -> Splits:
        """For one reply. `hold`: nothing of a call is told before all of it is there."""
        if self.harmony:
            return HarmonySplitter(self.tools, hold=hold, new_id=new_call_id)
        if not self.syntax.thinking and not self.tools:
            return _Text()
        return Splitter(self.syntax, self.tools, thinking=self.thinking, hold=hold)


PLAIN = ReplyFormat()
"""A reply that is text and nothing else."""


def is_harmony(template: str) -> bool:
    """Whether a model with this template writes in gpt-oss's channels."""
    return CHANNEL in template and MESSAGE in template


def marking_tokens(vocabulary: Vocabulary, *, harmony: bool) -> frozenset[int]:
    """Control tokens that stand in the text of a reply for what it is made of. Ends of a reply are none."""
    return frozenset(
        token
        for token in vocabulary.control - vocabulary.end_of_generation
        if _marks(vocabulary.pieces[token].decode("utf-8", "replace"), harmony=harmony)
    )


def _marks(piece: str, *, harmony: bool) -> bool:
    return piece in _HARMONY if harmony else bool(_MARKING.search(piece))
