"""What a reply is made of, piece after piece: text, thoughts, and calls of tools."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class TextDelta:
    """More of the answer's text."""

    text: str


@dataclass(frozen=True)
class ThinkingDelta:
    """More of the model's thoughts."""

    text: str


@dataclass(frozen=True)
class CallStart:
    """A call of the tool `name` begins. `index` counts the calls of a reply from 0."""

    index: int
    id: str
    name: str


@dataclass(frozen=True)
class ArgumentsDelta:
    """More of the call's arguments: all of them, joined, are the JSON text of one object."""

    index: int
    text: str


@dataclass(frozen=True)
class CallEnd:
    """The call is complete. A call without its end broke off: its whole text follows as TextDelta."""

    index: int


Event = TextDelta | ThinkingDelta | CallStart | ArgumentsDelta | CallEnd


def joined(events: list[Event]) -> list[Event]:
    """`events` with neighbours of one kind made one."""
    whole: list[Event] = []
    for event in events:
        last = whole[-1] if whole else None
        if isinstance(event, TextDelta) and isinstance(last, TextDelta):
            whole[-1] = TextDelta(last.text + event.text)
        elif isinstance(event, ThinkingDelta) and isinstance(last, ThinkingDelta):
            whole[-1] = ThinkingDelta(last.text + event.text)
        elif (
            isinstance(event, ArgumentsDelta)
            and isinstance(last, ArgumentsDelta)
            and event.index == last.index
        ):
            whole[-1] = ArgumentsDelta(last.index, last.text + event.text)
        else:
            whole.append(event)
    return whole
