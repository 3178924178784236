"""What a request is for: a turn of the conversation, or something its client asks on the side."""

from __future__ import annotations

import re
from enum import StrEnum

from headstart.blame.prompt import Kind, Prompt


class Purpose(StrEnum):
    TURN = "turn"
    TITLE = "title"
    TOPIC = "topic check"
    SUMMARY = "summary"
    COMPACTION = "compaction"
    COUNT = "token count"
    OTHER = "side request"


# Longer ones are conversations that happen to use the word.
_SIDE_CHARS = 12_000
_EDGE_CHARS = 1_500
_ORDER_CHARS = 160
_SUMMARISE = re.compile(r"summar|compact|hand-?off|condense", re.IGNORECASE)
_HISTORY = re.compile(
    r"conversation|session|context|so far|above|history|transcript|discussion", re.IGNORECASE
)
_WORDS = (
    (Purpose.TITLE, re.compile(r"\btitles?\b", re.IGNORECASE)),
    (Purpose.TOPIC, re.compile(r"new ?topic|topic (?:has )?change|\btopics?\b", re.IGNORECASE)),
    (Purpose.SUMMARY, _SUMMARISE),
    (
        Purpose.OTHER,
        re.compile(
            r"commit message|follow-?up questions|autocomplet|\btags\b|suggest(?:ed|ion)", re.IGNORECASE
        ),
    ),
)


def purpose_of(path: str, prompt: Prompt, *, continues: bool, with_tools: bool) -> Purpose:
    """The purpose of a request. `continues`: it begins like a conversation that is known; `with_tools`: that
    one, or else any that is known, sends tools."""
    if path.split("?", 1)[0].rstrip("/").endswith("/count_tokens"):
        return Purpose.COUNT
    tools = any(piece.kind is Kind.TOOL for piece in prompt.pieces)
    last = _last_user(prompt)
    if continues:
        order = bool(_SUMMARISE.search(last) and _HISTORY.search(last))
        instructs = len(last) > _ORDER_CHARS or (with_tools and not tools)
        return Purpose.COMPACTION if order and instructs else Purpose.TURN
    if tools:
        return Purpose.TURN
    return _by_words(prompt, last, with_tools)


def _by_words(prompt: Prompt, last: str, with_tools: bool) -> Purpose:
    system = "\n".join(piece.text for piece in prompt.pieces if piece.kind is Kind.SYSTEM)
    instructions = system[:_EDGE_CHARS] if system else f"{last[:_EDGE_CHARS]}\n{last[-_EDGE_CHARS:]}"
    long = prompt.chars > _SIDE_CHARS
    # Without tools anywhere a plain chat may well be about titles: only an order to a helper counts then.
    helper = with_tools or (bool(system) and _turns(prompt) == 1)
    for purpose, words in _WORDS:
        if helper and words.search(instructions) and (purpose is Purpose.SUMMARY or not long):
            return purpose
    return Purpose.TURN


def _turns(prompt: Prompt) -> int:
    return len({piece.message for piece in prompt.pieces if piece.kind is not Kind.SYSTEM})


def _last_user(prompt: Prompt) -> str:
    for piece in reversed(prompt.pieces):
        if piece.kind is Kind.TEXT and piece.role != "assistant":
            return piece.text
    return ""
