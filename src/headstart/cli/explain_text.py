"""An explanation as text: what it cost, turn by turn, and every finding with its fix."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from headstart.blame.explanation import Chapter, Explanation, Row, Told
from headstart.blame.purpose import Purpose
from headstart.cli.cache_action import counted
from headstart.cli.finding_words import cost, count, finding_lines, shown, sums

__all__ = ["text_of"]

MOST_ROWS = 60
MOST_TURNS_NAMED = 12
_HEADS = f"{'':<14}{'prompt':>9}{'reused':>9}{'again':>9}{'new':>9}{'first token':>13}"


def text_of(told: Explanation, source: str) -> Iterator[str]:
    """The lines."""
    yield from _heading(told, source)
    if told.totals:
        yield ""
        yield from sums(told.totals)
    for chapter in told.chapters:
        yield ""
        yield from _chapter(chapter)


def _heading(told: Explanation, source: str) -> Iterator[str]:
    rows = told.rows
    conversations = sum(bool(chapter.name) for chapter in told.chapters)
    side = sum(row.purpose is not Purpose.TURN for row in rows)
    parts = [counted(len(rows), "exchange"), counted(conversations, "conversation")]
    parts += [counted(side, "side request")] if side else []
    yield f"recording  {source}: {', '.join(parts)}"
    if told.servers:
        yield f"server     {shown(', '.join(told.servers))}"
    prompts = [(row.prompt, row.reused) for row in rows if row.prompt is not None and row.reused is not None]
    if prompts:
        sent, reused = sum(one or 0 for one, _ in prompts), sum(one or 0 for _, one in prompts)
        again = sum(row.again or 0 for row in rows)
        share = 100 * reused / sent if sent else 0.0
        yield f"reuse      {reused:,} of {sent:,} prompt tokens ({share:.1f} %); {again:,} were read again"
    else:
        yield "reuse      the server told no counts of reused tokens"
    if told.tokens_per_s:
        yield f"reading    {told.tokens_per_s:,.0f} tokens a second, the median of what this server read"
    for note in told.notes:
        yield f"note       {shown(note)}"
    if not told.totals:
        yield "findings   none: nothing was read again without need, as far as the server tells"


def _chapter(chapter: Chapter) -> Iterator[str]:
    turns = sum(row.purpose is Purpose.TURN for row in chapter.rows)
    lost = f"; {chapter.lost:,} tokens read again" if chapter.lost else ""
    if chapter.name:
        yield f"conversation {chapter.name}: {counted(turns, 'turn')}{lost}"
    else:
        yield f"requests of no conversation: {len(chapter.rows)}"
    yield _HEADS
    for row in _most_telling(chapter.rows):
        yield from _row(row)
    left = len(chapter.rows) - MOST_ROWS
    if left > 0:
        yield f"(and {left} more, in which less was read again; --json and --html have all)"
    for number, told in enumerate(chapter.told, 1):
        yield ""
        yield from _told(number, told)


def _most_telling(rows: Sequence[Row]) -> list[Row]:
    """Rows in order; where there are too many, those that lost most."""
    if len(rows) <= MOST_ROWS:
        return list(rows)
    dear = sorted(rows, key=lambda row: (row.again or 0, row.new or 0), reverse=True)[:MOST_ROWS]
    return sorted(dear, key=lambda row: row.number)


def _row(row: Row) -> Iterator[str]:
    label = str(row.turn) if row.purpose is Purpose.TURN else row.purpose.value
    first = "" if row.first_token_s is None else f"{row.first_token_s:.2f} s"
    again = "-" if row.again is None and row.turn <= 1 else count(row.again)
    counts = f"{count(row.prompt):>9}{count(row.reused):>9}{again:>9}{count(row.new):>9}{first:>13}"
    yield f"  {label:<12}{counts}  {', '.join(dict.fromkeys(row.causes))}".rstrip()
    if row.error is not None:
        yield f"      error: {shown(row.error)}"
    for note in row.notes:
        yield f"      {shown(note)}"


def _told(number: int, told: Told) -> Iterator[str]:
    found = told.finding
    lost = cost(told.tokens_lost, told.seconds_lost)
    where = _turns(told)
    yield f"{number}. {found.cause} ({found.culprit.value}){f': {lost}' if lost else ''}, {where}"
    yield from (f"   {line}" for line in finding_lines(found))


def _turns(told: Told) -> str:
    turns = [turn for turn in told.turns if turn]
    if not turns:
        return counted(len(told.numbers), "side request")
    named = ", ".join(map(str, turns[:MOST_TURNS_NAMED]))
    more = f" and {len(turns) - MOST_TURNS_NAMED} more" if len(turns) > MOST_TURNS_NAMED else ""
    shows = "; shown is the first" if len(turns) > 1 else ""
    return f"turn{'s' if len(turns) > 1 else ''} {named}{more}{shows}"
