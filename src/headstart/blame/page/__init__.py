"""An explanation as one HTML page: everything inside it, nothing fetched, no script.

What clients and servers said is escaped by the template (autoescape); what cannot be seen is shown escaped.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from headstart import __version__
from headstart.blame.causes import CAUSES
from headstart.blame.diff import common_end, common_length
from headstart.blame.explanation import Explanation, Row
from headstart.blame.finding import Culprit
from headstart.blame.purpose import Purpose

__all__ = ["page_of"]

WHO = {
    Culprit.CLIENT: "the client did it",
    Culprit.TEMPLATE: "the chat template does it",
    Culprit.TOKENIZER: "the tokenizer does it",
    Culprit.SERVER: "the server did it",
}


def page_of(told: Explanation, source: str) -> str:
    """The whole document. `source`: what was explained."""
    rows = told.rows
    return (
        _environment()
        .get_template("page.html")
        .render(
            told=told,
            source=source,
            version=__version__,
            plain={cause.CODE: cause.PLAIN for cause in CAUSES},
            who=WHO,
            most=max((row.prompt or 0 for row in rows), default=0),
            sent=_sum(row.prompt for row in rows if row.reused is not None),
            reused=_sum(row.reused for row in rows if row.prompt is not None),
            again=_sum(row.again for row in rows),
            lost_s=_sum(one.seconds_lost for one in told.totals),
            is_turn=lambda row: row.purpose is Purpose.TURN,
            parts=_parts,
            split=_split,
        )
    )


@cache
def _environment() -> Environment:
    made = Environment(
        loader=PackageLoader("headstart.blame.page"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters.update(count=_count, seconds=_seconds, seen=_seen)
    return made


def _sum(values: Any) -> Any:
    """None where nobody told anything."""
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def _count(value: int | None) -> str:
    return "?" if value is None else f"{value:,}"


def _seconds(value: float | None) -> str:
    if value is None:
        return "?"
    return f"{value:.2f} s" if value < 10 else f"{value:,.0f} s"


def _seen(text: str) -> str:
    """`text` with control and other invisible characters escaped, but for line ends."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() or char == "\n" else _escaped(char) for char in text)


def _escaped(char: str) -> str:
    return char.encode("unicode_escape").decode()


def _parts(row: Row, most: int) -> list[tuple[str, float]]:
    """The bar of a turn: its parts by name, each in percent of the longest prompt."""
    if not most or row.prompt is None:
        return []
    known = {"reused": row.reused, "again": row.again, "new": row.new}
    if row.reused is None:
        known = {"untold": row.prompt}
    return [(name, 100 * value / most) for name, value in known.items() if value]


@dataclass(frozen=True)
class _Side:
    """A text around the place: what both sides begin with, what differs, what both end with."""

    alike: str
    differs: str
    rest: str


def _split(before: str, after: str) -> tuple[_Side, _Side]:
    start = common_length(before, after)
    end = common_end(before, after, start)

    def side(text: str) -> _Side:
        return _Side(text[:start], text[start : len(text) - end], text[len(text) - end :])

    return side(before), side(after)
