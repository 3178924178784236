"""An id that is drawn anew."""

from __future__ import annotations

import re

from headstart.blame.causes.context import Context, both, found, short, sides
from headstart.blame.finding import Change, Finding, Fix

CODE = "RANDOM_ID"
PLAIN = (
    "A message id, session id or other random text stands in the prompt and is drawn anew, so everything "
    "behind it is read again. The model has no use for it."
)
FIX = Fix("Keep ids in fields of the request that are not rendered, or on the newest message only.")
_WORD = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*")
_UUID = re.compile(r"[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}", re.IGNORECASE)
_HEX = re.compile(r"[0-9a-f]{6,}", re.IGNORECASE)
_LENGTHS = 3


def detect(change: Change | None, context: Context) -> Finding | None:
    at = sides(change) if change else None
    words = both(_WORD, at) if at else None
    if change is None or words is None or abs(len(words[0]) - len(words[1])) > _LENGTHS:
        return None
    if not all(is_random(word) for word in words):
        return None
    return found(CODE, change, context, f"an id changed: {short(words[0])} -> {short(words[1])}", FIX)


def is_random(word: str) -> bool:
    """Whether a word looks drawn: a UUID, hexadecimal digits, or letters and digits mixed."""
    if _UUID.search(word):
        return True
    return any(_mixed(part) for part in re.split(r"[_-]", word)) or _mixed(word.replace("-", ""), 12)


def _mixed(part: str, least: int = 8) -> bool:
    digits = sum(letter.isdigit() for letter in part)
    letters = len(part) - digits
    if _HEX.fullmatch(part):
        return digits >= 1 and letters >= 1
    return len(part) >= least and digits >= 2 and letters >= 2
