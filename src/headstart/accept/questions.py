"""What is asked about a passage, and what a reply answers. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence

from headstart.accept.exchange import Exchange, Message
from headstart.accept.fixtures import Passage, QuestionKind

ABSENT = "NA"
_ASKED = re.compile(r"([A-Z]+)=$")
_ALL = ("EARLY", "MIDDLE", "LATE")
MOST_TOKENS = {QuestionKind.ASK: 40, QuestionKind.COPY: 8}


def question(kind: QuestionKind, passage: Passage, marker: str | None, *, chat: bool) -> str:
    """The text after a passage. `marker`: the one a COPY asks for; the deepest where None."""
    if kind is QuestionKind.ASK:
        names = [m.name for m in passage.markers]
        names += [name for name in _ALL if name not in names]
        form = " ".join(f"{name}=..." for name in names)
        return (
            "\n\nQuestion: which values does the text above give for these names? Answer with one line "
            f"of the form {form} and write {ABSENT} for a name that is not in the text.\nAnswer:"
        )
    name = marker or (passage.markers[-1].name if passage.markers else "EARLY")
    if chat:
        return f"\n\nComplete this line with the value from the text, and write only the value: {name}="
    return f"\n\nAs was said above, keep in mind: {name}="


def heard(exchange: Exchange, name: str) -> str | None:
    """The value a reply gives for marker `name`, "NA" where it says absent; None where it does not
    answer. A COPY reply answers only for the marker that was asked."""
    asked = _ASKED.search(exchange.ask.text)
    named = re.search(rf"\b{name}\s*[=:]\s*\**\s*([0-9]{{5}}|{ABSENT}\b)", exchange.text)
    if named:
        return named[1]
    if asked is None or asked[1] != name:
        return None
    value = re.search(r"(?<![0-9])[0-9]{5}(?![0-9])", exchange.text)
    return value[0] if value else None


def as_text(messages: Sequence[Message]) -> str:
    """A conversation for a wire that only continues text."""
    said = "".join(f"{m.role.capitalize()}: {m.content}\n\n" for m in messages)
    return said + "Assistant:"
