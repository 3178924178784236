"""The same words with other spaces or line ends."""

from __future__ import annotations

import unicodedata

from headstart.blame.causes.context import Context, found, sides
from headstart.blame.diff import replaced
from headstart.blame.finding import Change, Finding, Fix, Step
from headstart.blame.prompt import Kind

CODE = "WHITESPACE_DRIFT"
PLAIN = (
    "Only spaces, line ends or the way letters are composed differ: a trimmed line end, CRLF for LF, a blank "
    "line more. Tokens differ all the same, so everything behind it is read again."
)
FIX = Fix("Keep every text as it was first sent or generated; trim nothing, and write one kind of line end.")


def detect(change: Change | None, context: Context) -> Finding | None:
    at = sides(change) if change else None
    if change is None or at is None or at.kind in (Kind.CALL, Kind.MEDIA) or at.before == at.after:
        return None
    if _bare(at.before) != _bare(at.after):
        return None
    _, gone, come = replaced(at.before, at.after)
    since = "than generated" if context.step is Step.GENERATED else "than before"
    said = f"only white space is otherwise {since}: {_seen(gone)} -> {_seen(come)}"
    return found(CODE, change, context, said, FIX)


def _bare(text: str) -> str:
    """A text without white space, composed in one way."""
    plain = text if text.isascii() else unicodedata.normalize("NFC", text)
    return "".join(plain.replace("\u200b", "").replace("\ufeff", "").split())


def _seen(text: str) -> str:
    return repr(text if len(text) <= 24 else text[:21] + "...") if text else "nothing"
