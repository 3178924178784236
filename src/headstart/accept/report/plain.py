"""Text of unknown origin, made fit to be shown: one line that misleads neither a terminal nor an eye."""

from __future__ import annotations

import re
import unicodedata
from typing import Final

_DIRECTIONS: Final = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
_UNSEEN: Final = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
_JOINERS: Final = frozenset("\u200c\u200d")
_SHORT: Final = {"\n": "\\n", "\r": "\\r", "\t": " "}


def plain(text: str) -> str:
    """`text` on one line. Control characters, marks that turn the direction of writing and lone surrogates
    become visible escapes (\\x1b, \\u202e); joiners, which emoji and several scripts need, stay."""
    return text if text.isprintable() else "".join(_shown(char) for char in text)


def clipped(text: str, most: int) -> str:
    """As much of `text` as `most` columns hold, the last one an ellipsis where something was left out."""
    if columns(text) <= most:
        return text
    kept, used = "", 1
    for char in text:
        used += _columns(char)
        if used > most:
            break
        kept += char
    return kept.rstrip() + "…"


def sentence(text: str) -> str:
    """`text` with a capital first and a full stop last, where it has neither."""
    if not text:
        return ""
    return text[0].upper() + text[1:] + ("" if text[-1] in ".!?…" else ".")


def columns(text: str) -> int:
    """How many columns of a terminal `text` takes: wide characters two, combining ones none."""
    return len(text) if text.isascii() else sum(_columns(char) for char in text)


def wrapped(text: str, width: int) -> list[str]:
    """`text` in lines of `width` columns at most, broken at spaces and, where a word is longer, inside it."""
    lines: list[str] = []
    line = ""
    for word in re.split(r" +", text):
        for piece in _pieces(word, max(width, 2)):
            joined = f"{line} {piece}" if line else piece
            if columns(joined) <= width:
                line = joined
            else:
                lines += [line] if line else []
                line = piece
    return [*lines, line] if line or not lines else lines


def padded(text: str, width: int) -> str:
    """`text` followed by as many spaces as fill `width` columns."""
    return text + " " * max(0, width - columns(text))


def _shown(char: str) -> str:
    if char in _SHORT:
        return _SHORT[char]
    if char in _JOINERS or (char not in _DIRECTIONS and unicodedata.category(char) not in _UNSEEN):
        return char
    code = ord(char)
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _columns(char: str) -> int:
    if unicodedata.combining(char) or char in _JOINERS or unicodedata.category(char) == "Me":
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1


def _pieces(word: str, width: int) -> list[str]:
    pieces: list[str] = []
    piece = ""
    used = 0
    for char in word:
        size = _columns(char)
        if used + size > width:
            pieces.append(piece)
            piece, used = "", 0
        piece += char
        used += size
    return [*pieces, piece]
