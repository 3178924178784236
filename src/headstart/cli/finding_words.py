"""How findings are put for a person: the place, the cost, both sides of the difference, the fix."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from headstart.blame.diff import common_length
from headstart.blame.finding import Finding
from headstart.blame.verdict import CauseTotal

__all__ = ["cost", "count", "finding_lines", "fix", "place", "shown", "sides", "sums"]

SIDE_CHARS = 100


def finding_lines(found: Finding) -> Iterator[str]:
    """Everything about a finding but its name and cost."""
    yield f"{shown(found.said)}."
    if where := place(found):
        yield f"at {where}"
    yield from sides(found)
    yield from fix(found)


def fix(found: Finding) -> Iterator[str]:
    """What to do."""
    if found.fix.text:
        yield f"fix: {found.fix.text}"
    if found.fix.command:
        yield f"     {found.fix.command}"
    if found.fix.repair:
        yield f"     or headstart watch --fix {found.fix.repair}, which does it on the way"


def place(found: Finding) -> str:
    """The part of the body, the character in it, and the token of the prompt, as far as they are known."""
    where = [found.path] if found.path else []
    if found.path and found.offset is not None:
        where.append(f"character {found.offset:,}")
    if found.token is not None:
        behind = f", {found.tokens_behind:,} behind it" if found.tokens_behind is not None else ""
        where.append(f"token {found.token:,} of the prompt{behind}")
    return ", ".join(where)


def cost(tokens: int | None, seconds: float | None) -> str:
    """What was lost, "" where nobody counted."""
    if tokens is None:
        return ""
    return f"{tokens:,} tokens" + ("" if seconds is None else f", {seconds:,.1f} s")


def sums(totals: Iterable[CauseTotal]) -> Iterator[str]:
    """What each cause cost, a line each below their headings."""
    yield f"{'lost by':<22}{'turns':>6}{'tokens':>12}{'seconds':>10}"
    for one in totals:
        seconds = "?" if one.seconds_lost is None else f"{one.seconds_lost:,.1f}"
        yield f"{one.cause:<22}{one.turns:>6,}{count(one.tokens_lost):>12}{seconds:>10}"


def sides(found: Finding) -> list[str]:
    """The text around the place before and now, and a mark under the first letter that differs."""
    if not found.before and not found.after:
        return []
    before, after = _side(found.before), _side(found.after)
    mark = common_length(before, after)
    lines = [f"before: {before}", f"now:    {after}"]
    return [*lines, f"        {' ' * mark}^"] if before and after else lines


def _side(text: str) -> str:
    flat = shown(text)
    return flat if len(flat) <= SIDE_CHARS else f"{flat[: SIDE_CHARS - 3]}..."


def shown(text: str) -> str:
    """`text` with what cannot be seen, or would steer the terminal, escaped. Spaces stay: they may be what
    differs."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


def count(number: int | None) -> str:
    """A count; "?" where it was not told."""
    return "?" if number is None else f"{number:,}"
