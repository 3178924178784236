"""Dates and times as clients write them."""

from __future__ import annotations

import re

_MONTH = r"(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)[a-z]*"
_DAY = r"(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)[a-z]*"
_DATE = (
    rf"(?:(?:{_DAY},?\s+)?(?:\d{{4}}-\d\d?-\d\d?|\d{{4}}/\d\d?/\d\d?|\d{{4}}年\d\d?月\d\d?日"
    rf"|{_MONTH}\.?\s+\d{{1,2}}(?:st|nd|rd|th)?,?\s+\d{{4}}|\d{{1,2}}\.?\s+{_MONTH}\.?,?\s+\d{{4}}"
    rf"|\d{{1,2}}[./]\d{{1,2}}[./]\d{{2,4}}))"
)
_TIME = (
    r"(?:\d{1,2}:\d\d(?::\d\d(?:[.,]\d+)?)?(?:\s?[AaPp]\.?[Mm]\.?)?(?:\s?(?:Z|UTC|GMT|[+-]\d\d:?\d\d))?"
    r"|\d{1,2}\s?[AaPp][Mm]\b)"
)
DATE = re.compile(rf"{_DATE}|\b{_DAY}\b")
MOMENT = re.compile(rf"(?<![\d:]){_DATE}(?:T|,?\s+(?:at\s+)?){_TIME}|(?<![\d:.]){_TIME}")
EPOCH = re.compile(r"(?<!\d)1[6-9]\d{8}(?:\d{3})?(?:\.\d+)?(?!\d)")
_HANDS = re.compile(r"(\d{1,2}):(\d\d)(?::(\d\d))?")


def period(one: str, other: str) -> str:
    """How often a time written like that is another: second, minute, hour or day."""
    hands = [_HANDS.search(text) for text in (one, other)]
    if any(found is None for found in hands):
        return "hour"
    values = [found.groups() for found in hands if found]
    if any(value[2] not in (None, "00") for value in values):
        return "second"
    if any(value[1] != "00" for value in values):
        return "minute"
    return "day" if all(int(value[0]) in (0, 24) for value in values) else "hour"
