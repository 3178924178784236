"""How the replies to one request are taken apart, and which control tokens that needs to see."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from pydantic_core import from_json

from headstart.chat.replies.events import ArgumentsDelta, CallEnd, CallStart, Event, TextDelta
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


class _Sound:
    """Whole calls, and only those whose arguments every JSON reader takes; the others are text and a warning.

    Python reads more than that: half of a surrogate pair, NaN, lists a thousand deep.
    """

    def __init__(self, splitter: Splits) -> None:
        self._splitter = splitter
        self._own: list[str] = []

    @property
    def warnings(self) -> list[str]:
        return [*self._splitter.warnings, *self._own]

    def feed(self, text: str) -> list[Event]:
        return self._checked(self._splitter.feed(text))

    def end(self) -> list[Event]:
        return self._checked(self._splitter.end())

    def _checked(self, events: list[Event]) -> list[Event]:
        bad = {index: text for index, text in _arguments(events).items() if not _is_sound(text)}
        if not bad:
            return events
        told: list[Event] = []
        for event in events:
            if isinstance(event, CallStart) and event.index in bad:
                told.append(TextDelta(f"{event.name} {bad[event.index]}"))
                self._own.append(f"a call of {event.name} has arguments that are no JSON object; it is text")
            elif not isinstance(event, CallStart | ArgumentsDelta | CallEnd) or event.index not in bad:
                told.append(event)
        return told


def _arguments(events: list[Event]) -> dict[int, str]:
    found: dict[int, str] = {}
    for event in events:
        if isinstance(event, CallStart):
            found[event.index] = ""
        elif isinstance(event, ArgumentsDelta):
            found[event.index] = found.get(event.index, "") + event.text
    return found


def _is_sound(arguments: str) -> bool:
    try:
        value = from_json(arguments or "{}", allow_inf_nan=False)
        return isinstance(value, dict) and json.loads(json.dumps(value, allow_nan=False)) == value
    except (ValueError, RecursionError):
        return False


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
        if not self.harmony and not self.syntax.thinking and not self.tools:
            return _Text()
        splitter: Splits
        if self.harmony:
            splitter = HarmonySplitter(self.tools, hold=hold, new_id=new_call_id)
        else:
            splitter = Splitter(self.syntax, self.tools, thinking=self.thinking, hold=hold)
        return _Sound(splitter) if hold else splitter


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
