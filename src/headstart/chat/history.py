"""A history faithful to what was generated: replies that come back keep the tokens they were made of.

A client sends a reply back as text: trimmed, its calls written anew, its thoughts left out. Rendered and
encoded, that need not give the tokens that were generated, and a cache that holds those ends where they part.
So the prompt is built from the generated tokens wherever the reply that came back means the same. Where it
means something else, the client's words stand.

*The same* are two replies with the same text but for blanks around it, the same calls in the same order with
arguments that are equal as JSON, and the same thoughts; thoughts may be missing from what came back, where
the template would have kept them. An argument that is left out is equal to one that is its schema's default:
some clients (Claude Code, for one) write defaults into the calls that they send back.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from threading import Lock
from typing import Any

import numpy as np
from blake3 import blake3

from headstart.chat.replies.events import ArgumentsDelta, CallStart, Event, TextDelta, ThinkingDelta
from headstart.prefix.tokens import TokenRun

__all__ = ["History", "Meaning", "Said", "Splice", "meaning_of", "spliced", "splices"]

MOST_REPLIES = 8192
MOST_TOKENS = 8_000_000
REPLIES_A_PROMPT = 4


@dataclass(frozen=True)
class Said:
    """A reply as it was generated: its text, control tokens spelled, and its tokens, without that which ended
    it."""

    text: str
    tokens: TokenRun = field(compare=False)


@dataclass(frozen=True)
class Splice:
    """`start`, `end`: characters of a rendered prompt between which a reply came back; `said`: that reply."""

    start: int
    end: int
    said: Said


@dataclass(frozen=True)
class Meaning:
    """What a reply says, whatever way it is written. `calls`: names, and arguments as JSON with sorted keys
    and without those that are their defaults, or as they are where they are no JSON."""

    text: str
    thinking: str
    calls: tuple[tuple[str, str], ...]

    def same(self, came_back: Meaning, *, thoughts_may_be_missing: bool) -> bool:
        alike = self.thinking == came_back.thinking
        missing = thoughts_may_be_missing and not came_back.thinking
        return (self.text, self.calls) == (came_back.text, came_back.calls) and (alike or missing)


def meaning_of(events: Iterable[Event], tools: Mapping[str, Any]) -> Meaning:
    """What the events of a reply mean. `tools`: the arguments' JSON schema of each tool by its name."""
    text, thinking = "", ""
    calls: dict[int, list[str]] = {}
    for event in events:
        if isinstance(event, TextDelta):
            text += event.text
        elif isinstance(event, ThinkingDelta):
            thinking += event.text
        elif isinstance(event, CallStart):
            calls[event.index] = [event.name, ""]
        elif isinstance(event, ArgumentsDelta):
            calls[event.index][1] += event.text
    told = tuple((name, _meant(arguments, tools.get(name))) for name, arguments in calls.values())
    return Meaning(text.strip(), thinking.strip(), told)


def _meant(arguments: str, schema: Any) -> str:
    defaults = _defaults(schema)
    try:
        given = json.loads(arguments or "{}")
        if isinstance(given, dict):
            given = {
                name: value
                for name, value in given.items()
                if name not in defaults or _sorted(value) != _sorted(defaults[name])
            }
        return _sorted(given)
    except (ValueError, RecursionError):
        return arguments


def _defaults(schema: Any) -> dict[str, Any]:
    """The values that arguments which may be left out then have."""
    properties = schema.get("properties") if isinstance(schema, dict) else None
    if not isinstance(properties, dict):
        return {}
    required = schema.get("required")
    needed = required if isinstance(required, list) else []
    return {
        name: one["default"]
        for name, one in properties.items()
        if isinstance(one, dict) and "default" in one and name not in needed
    }


def _sorted(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


class History:
    """The last replies, by the rendered prompt that they answered. Thread-safe; what is over the bounds is
    forgotten, the longest unused prompts first."""

    def __init__(self, replies: int = MOST_REPLIES, tokens: int = MOST_TOKENS) -> None:
        self._most, self._most_tokens = replies, tokens
        self._said: OrderedDict[tuple[str, int, bytes], list[Said]] = OrderedDict()
        self._tokens = 0
        self._lock = Lock()

    def remember(self, tenant: str, prompt: str, said: Said) -> None:
        """`said` is what came for the rendered `prompt`."""
        key = (tenant, len(prompt), blake3(prompt.encode("utf-8", "surrogatepass")).digest(16))
        with self._lock:
            replies = self._said.setdefault(key, [])
            self._said.move_to_end(key)
            if said in replies:
                return
            replies.append(said)
            self._tokens += len(said.tokens)
            if len(replies) > REPLIES_A_PROMPT:
                self._tokens -= len(replies.pop(0).tokens)
            while len(self._said) > self._most or self._tokens > self._most_tokens:
                _, gone = self._said.popitem(last=False)
                self._tokens -= sum(len(one.tokens) for one in gone)

    def answers(self, tenant: str, text: str) -> list[tuple[int, list[Said]]]:
        """Where prompts that were answered end in `text`, which begins with them, and their replies. One pass
        over the text."""
        with self._lock:
            known = sorted(
                {length for owner, length, _ in self._said if owner == tenant and length < len(text)}
            )
        found, hasher, at = [], blake3(), 0
        for length in known:
            hasher.update(text[at:length].encode("utf-8", "surrogatepass"))
            at = length
            key = (tenant, length, hasher.digest(16))
            with self._lock:
                replies = self._said.get(key)
                if replies:
                    self._said.move_to_end(key)
                    found.append((length, list(reversed(replies))))
        return found


def splices(
    text: str,
    answers: Sequence[tuple[int, list[Said]]],
    ends: Sequence[str],
    same: Callable[[int, str, str], bool],
) -> list[Splice]:
    """The replies in `text` that mean what was generated. `ends`: spellings that end a turn. `same(start,
    generated, came_back)` compares the texts of two replies to the prompt that ends at `start`."""
    found: list[Splice] = []
    for start, replies in answers:
        if found and start < found[-1].end:
            continue
        places = [place for end in ends if (place := text.find(end, start)) >= 0]
        if not places:
            continue
        back = text[start : min(places)]
        said = next((one for one in replies if one.text == back or same(start, one.text, back)), None)
        if said is not None:
            found.append(Splice(start, min(places), said))
    return found


def spliced(
    text: str, places: Sequence[Splice], tokenize: Callable[[str, bool], TokenRun]
) -> tuple[TokenRun, str, Callable[[int], int]]:
    """The tokens of `text` with replies as they were generated, the text that these spell, and where a
    character of `text` stands in it. `tokenize(text, first)`: of the prompt's beginning, or of a part behind
    a reply, which begins with the end of a turn."""
    runs, spelled, at = [], "", 0
    moved: list[tuple[int, int]] = []
    for place in places:
        part = text[at : place.start]
        runs += [tokenize(part, at == 0), place.said.tokens]
        spelled += part + place.said.text
        at = place.end
        moved.append((place.end, len(spelled) - place.end))
    runs.append(tokenize(text[at:], at == 0))
    spelled += text[at:]

    def where(char: int) -> int:
        return char + next((by for end, by in reversed(moved) if char >= end), 0)

    return np.concatenate(runs).astype(np.int32), spelled, where
