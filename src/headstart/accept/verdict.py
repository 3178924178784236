"""What a gate answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

Figure = int | float | str | bool | None


class Outcome(StrEnum):
    """PASS: shown. FAIL: shown otherwise. INCONCLUSIVE: it could not be judged, and the reason says what
    was missing. UNSUPPORTED: the server or the command line does not offer what the gate needs."""

    PASS = "PASS"
    FAIL = "FAIL"
    INCONCLUSIVE = "INCONCLUSIVE"
    UNSUPPORTED = "UNSUPPORTED"


_WORST_FIRST = (Outcome.FAIL, Outcome.INCONCLUSIVE, Outcome.UNSUPPORTED, Outcome.PASS)


@dataclass(frozen=True)
class Verdict:
    """One line of the table.

    `gate`: the gate's name. `tier`: the tier's name, None for a gate that has none. `reason`: one line
    a person understands without the manual, figures included. `figures`: the same numbers by name, with
    units in the names (`gap_tokens`, `warm_s`); keys are stable, `compare` sets them side by side.
    `cases`: ids of the exchanges that show it. `part`: which of several questions of the gate, in a word
    or two ("streamed", "back again").
    """

    gate: str
    outcome: Outcome
    reason: str
    tier: str | None = None
    part: str = ""
    figures: Mapping[str, Figure] = field(default_factory=dict)
    cases: Sequence[str] = ()


def worst(outcomes: Sequence[Outcome]) -> Outcome:
    """The outcome that stands for several: a failure outweighs everything, a pass nothing."""
    return min(outcomes, key=_WORST_FIRST.index, default=Outcome.UNSUPPORTED)


def together(outcomes: Sequence[Outcome]) -> Outcome:
    """The outcome of a gate of several parts: the worst of those that could be asked at all."""
    return worst([outcome for outcome in outcomes if outcome is not Outcome.UNSUPPORTED])


def exit_status(verdicts: Sequence[Verdict]) -> int:
    """0 only if nothing failed and something was judged."""
    outcomes = [verdict.outcome for verdict in verdicts]
    return 0 if Outcome.FAIL not in outcomes and Outcome.PASS in outcomes else 1
