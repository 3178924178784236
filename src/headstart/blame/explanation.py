"""What a recording amounts to: its conversations as strips of turns, what was found, and what it cost.

Made once and shown as text, JSON or a page, so that all three say the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from headstart.blame.finding import Finding
from headstart.blame.purpose import Purpose
from headstart.blame.verdict import CauseTotal, TurnVerdict, totals

__all__ = ["Chapter", "Explanation", "Row", "Told", "explanation_of"]


@dataclass(frozen=True)
class Row:
    """A turn in counts. `again`: read before and read once more; `new`: read for the first time; None is what
    the server did not tell. `number`: of the exchange in the recording; `turn`: 0 for a side request."""

    number: int
    turn: int
    purpose: Purpose
    prompt: int | None
    reused: int | None
    again: int | None
    new: int | None
    first_token_s: float | None
    status: int | None
    error: str | None
    notes: tuple[str, ...]
    causes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Told:
    """A finding and the exchanges in which it came; `finding` is that of the first of them, the costs are the
    sums."""

    finding: Finding
    numbers: tuple[int, ...]
    turns: tuple[int, ...]
    tokens_lost: int | None
    seconds_lost: float | None


@dataclass(frozen=True)
class Chapter:
    """A conversation. `name`: A, B, ...; "" for requests that belong to none."""

    name: str
    rows: tuple[Row, ...]
    told: tuple[Told, ...]

    @property
    def lost(self) -> int:
        return sum(row.again or 0 for row in self.rows)


@dataclass(frozen=True)
class Explanation:
    """`totals`: by cause, the most expensive first. `tokens_per_s`: how fast the server read, None where it
    cannot be told. `notes`: what the reader of this should know: lines that were passed over, templates that
    did not fit."""

    chapters: tuple[Chapter, ...]
    totals: tuple[CauseTotal, ...]
    tokens_per_s: float | None
    servers: tuple[str, ...] = ()
    notes: tuple[str, ...] = field(default=())

    @property
    def rows(self) -> list[Row]:
        return [row for chapter in self.chapters for row in chapter.rows]


def explanation_of(
    verdicts: Sequence[TurnVerdict], tokens_per_s: float | None, notes: Iterable[str] = ()
) -> Explanation:
    """The verdicts of a recording by conversation, those that lost most first."""
    names = dict.fromkeys(verdict.conversation for verdict in verdicts)
    chapters = [
        _chapter(name, [verdict for verdict in verdicts if verdict.conversation == name]) for name in names
    ]
    servers = dict.fromkeys(verdict.turn.exchange.server for verdict in verdicts)
    return Explanation(
        tuple(sorted(chapters, key=lambda chapter: (not chapter.name, -chapter.lost))),
        tuple(totals(verdicts)),
        tokens_per_s,
        tuple(server for server in servers if server),
        tuple(notes),
    )


def _chapter(name: str, verdicts: Sequence[TurnVerdict]) -> Chapter:
    return Chapter(name, tuple(_row(verdict) for verdict in verdicts), tuple(_told(verdicts)))


def _row(verdict: TurnVerdict) -> Row:
    turn, exchange = verdict.turn, verdict.turn.exchange
    usage, again = exchange.usage, read_again(verdict)
    found = [one for one in (verdict.finding, *verdict.also) if one is not None]
    return Row(
        number=exchange.number,
        turn=turn.number,
        purpose=turn.purpose,
        prompt=usage.prompt,
        reused=usage.cached,
        again=again,
        new=None if usage.read is None else usage.read - (again or 0),
        first_token_s=exchange.timing.first_token,
        status=exchange.status,
        error=exchange.error,
        notes=exchange.notes,
        causes=tuple(one.cause for one in found),
    )


def read_again(verdict: TurnVerdict) -> int | None:
    """Tokens that were read before and were read once more. Of a new conversation only where something kept
    it from sharing the beginning of another one."""
    return verdict.tokens_lost if verdict.turn.number > 1 or verdict.finding is not None else None


def _told(verdicts: Sequence[TurnVerdict]) -> list[Told]:
    """Findings of one conversation, those of the same kind in one; the most expensive first."""
    kinds: dict[tuple[str, str], list[tuple[TurnVerdict, Finding]]] = {}
    for verdict in verdicts:
        for finding in (verdict.finding, *verdict.also):
            if finding is not None:
                kinds.setdefault((finding.cause, finding.culprit), []).append((verdict, finding))
    told = [_folded(group) for group in kinds.values()]
    return sorted(told, key=lambda one: (one.seconds_lost or 0, one.tokens_lost or 0), reverse=True)


def _folded(group: Sequence[tuple[TurnVerdict, Finding]]) -> Told:
    tokens = [finding.tokens_lost for _, finding in group if finding.tokens_lost is not None]
    seconds = [finding.seconds_lost for _, finding in group if finding.seconds_lost is not None]
    return Told(
        finding=group[0][1],
        numbers=tuple(verdict.turn.exchange.number for verdict, _ in group),
        turns=tuple(verdict.turn.number for verdict, _ in group),
        tokens_lost=sum(tokens) if tokens else None,
        seconds_lost=sum(seconds) if seconds else None,
    )
