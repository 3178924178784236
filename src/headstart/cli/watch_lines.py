"""How `headstart watch` shows a turn: a line for people, or an object for programs."""

from __future__ import annotations

import json
import re
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from headstart.blame.explanation import read_again
from headstart.blame.finding import Finding
from headstart.blame.purpose import Purpose
from headstart.blame.verdict import CauseTotal, TurnVerdict
from headstart.cli.finding_words import cost, count, fix, place, shown, sides

_LABEL = 16
_INDENT = "     "
_KEPT = 1000
HEADINGS = f"{'':<{_LABEL}}{'prompt':>9}{'reused':>9}{'again':>9}{'new':>9}{'first token':>13}"


class Lines:
    """Turns as lines: one of counts; below it, indented, what went wrong, was repaired and was found. What
    was found before in a conversation is said in short. "?": the server does not tell."""

    def __init__(self) -> None:
        self._told: OrderedDict[tuple[str, str, str], int] = OrderedDict()

    def of(self, verdict: TurnVerdict) -> str:
        return "\n".join([_counts(verdict), *(_INDENT + shown(text) for text in self._below(verdict))])

    def _below(self, verdict: TurnVerdict) -> Iterator[str]:
        exchange = verdict.turn.exchange
        if exchange.error is not None:
            yield f"error: {exchange.error}"
        yield from exchange.notes
        found = verdict.finding
        if found is None:
            return
        # Elsewhere in the same list is the same thing once more.
        name = (verdict.conversation, found.cause, re.sub(r"\d+", "", found.path))
        if name in self._told:
            yield f"{found.cause} again, as in turn {self._told[name]}, {_where(found)}".rstrip(", ")
        else:
            self._told[name] = verdict.turn.number
            yield from _at_length(found)
        self._told.move_to_end(name)
        if len(self._told) > _KEPT:
            self._told.popitem(last=False)
        for other in verdict.also:
            yield f"besides, {other.cause}: {other.said}"


def _counts(verdict: TurnVerdict) -> str:
    usage, timing = verdict.turn.exchange.usage, verdict.turn.exchange.timing
    again = read_again(verdict)
    new = None if usage.read is None else usage.read - (again or 0)
    first = "" if timing.first_token is None else f"{timing.first_token:.2f} s"
    # Side requests and the first turn of a conversation have nothing that could be read again.
    told = count(again) if again is not None or verdict.turn.number > 1 else "-"
    counts = f"{count(usage.prompt):>9}{count(usage.cached):>9}{told:>9}{count(new):>9}{first:>13}"
    what = verdict.turn.number if verdict.turn.purpose is Purpose.TURN else verdict.turn.purpose.value
    label = f"{verdict.conversation or '-':<2} {what}"
    return f"{label:<{_LABEL}}{counts}".rstrip()


def _at_length(found: Finding) -> Iterator[str]:
    yield f"{found.cause} ({found.culprit.value}): {found.said}"
    if where := _where(found):
        yield where
    yield from sides(found)
    yield from fix(found)


def _where(found: Finding) -> str:
    at, lost = place(found), cost(found.tokens_lost, found.seconds_lost)
    return ": ".join(
        part for part in (f"at {at}" if at else "", f"{lost} read again" if lost else "") if part
    )


def as_json(verdict: TurnVerdict) -> str:
    """The turn as one JSON object."""
    turn, exchange = verdict.turn, verdict.turn.exchange
    told = {
        "conversation": verdict.conversation or None,
        "turn": turn.number or None,
        "purpose": turn.purpose.value,
        "number": exchange.number,
        "started": exchange.started,
        "dialect": exchange.dialect,
        "server": exchange.server,
        "status": exchange.status,
        "prompt_tokens": exchange.usage.prompt,
        "reused_tokens": exchange.usage.cached,
        "read_again_tokens": read_again(verdict),
        "completion_tokens": exchange.usage.completion,
        "first_token_s": exchange.timing.first_token,
        "total_s": exchange.timing.total,
        "error": exchange.error,
        "notes": list(exchange.notes),
        "finding": None if verdict.finding is None else asdict(verdict.finding),
        "also": [asdict(one) for one in verdict.also],
    }
    return _written(told)


def sums_as_json(totals: Sequence[CauseTotal]) -> str:
    """What each cause cost, as one JSON object."""
    names = ("cause", "turns", "tokens_lost", "seconds_lost")
    return _written({"totals": [{name: getattr(one, name) for name in names} for one in totals]})


def _written(told: dict[str, Any]) -> str:
    # Half a surrogate pair, which JSON may hold, cannot be printed.
    return json.dumps(told, ensure_ascii=False).encode("utf-8", "backslashreplace").decode()
