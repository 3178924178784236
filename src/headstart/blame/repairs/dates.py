"""Keeps the dates and times of system prompts as the conversation first had them. Opt-in: the model is then
told the day it was when the conversation began."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from typing import Any

from headstart.blame.exchange import Dialect
from headstart.blame.repairs.seen import Seen
from headstart.blame.repairs.system import rewritten, texts

_MONTH = r"(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)[a-z]*\.?"
_DAY = r"(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)[a-z]*,?\s+"
_TIME = r"\d{1,2}:\d{2}(?::\d{2}(?:\.\d+)?)?(?:\s?[AaPp]\.?[Mm]\.?)?(?:\s?(?:Z|UTC|GMT|[+-]\d{2}:?\d{2}))?"
_DATE = rf"\d{{4}}-\d{{2}}-\d{{2}}|(?:{_DAY})?(?:{_MONTH}\s+\d{{1,2}}(?:st|nd|rd|th)?,?\s+\d{{4}}"
_DATE += rf"|\d{{1,2}}\.?\s+{_MONTH}\s+\d{{4}})|\d{{1,2}}[/.]\d{{1,2}}[/.]\d{{4}}"
_MOMENT = re.compile(rf"(?<![\w.])(?:(?:{_DATE})(?:[T ,]+(?:at\s+)?{_TIME})?|{_TIME})(?!\w)")


def dated(body: Any) -> dict[str, str]:
    """Lines of the system prompt that tell a date or time, by the line without it; none that come twice."""
    lines = [line for text in texts(body) for line in text.split("\n")] if isinstance(body, dict) else []
    pairs = [(_MOMENT.sub("\0", line), line) for line in lines]
    times = Counter(without for without, _ in pairs)
    return {without: line for without, line in pairs if "\0" in without and times[without] == 1}


def apply(dialect: Dialect, body: Any, seen: Seen) -> tuple[Any, tuple[str, ...]]:
    changed = {
        without: line
        for without, line in dated(body).items()
        if without in seen.dated and seen.dated[without] != line
    }
    if not changed:
        return body, ()
    notes: list[str] = []

    def frozen(text: str, path: str) -> str:
        lines = [_kept(line, changed, seen.dated) for line in text.split("\n")]
        after = "\n".join(lines)
        if after != text:
            notes.append(f"kept the date at {path} as it first was")
        return after

    return rewritten(body, frozen), tuple(notes)


def _kept(line: str, changed: Mapping[str, str], first: Mapping[str, str]) -> str:
    without = _MOMENT.sub("\0", line)
    return first[without] if changed.get(without) == line else line
