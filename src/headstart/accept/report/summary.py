"""A run in a few words and by gate: what every report begins with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from headstart.accept.report.results import GateEntry, Results, VerdictEntry
from headstart.accept.report.units import counted
from headstart.accept.verdict import Outcome, together


@dataclass(frozen=True)
class GateGroup:
    """A gate with its verdicts, in their order. `outcome` None: it gave none (not reached)."""

    gate: GateEntry
    verdicts: tuple[VerdictEntry, ...]

    @property
    def outcome(self) -> Outcome | None:
        return together([verdict.outcome for verdict in self.verdicts]) if self.verdicts else None


def by_gate(results: Results) -> tuple[GateGroup, ...]:
    """Every gate in the order of the run, those without verdicts too."""
    entries = {gate.name: gate for gate in results.gates}
    for verdict in results.verdicts:
        entries.setdefault(verdict.gate, GateEntry(verdict.gate, verdict.title, "", None, None))
    return tuple(
        GateGroup(entry, tuple(verdict for verdict in results.verdicts if verdict.gate == name))
        for name, entry in entries.items()
    )


def counts(verdicts: Sequence[VerdictEntry]) -> dict[Outcome, int]:
    """How many verdicts of each outcome, every outcome named."""
    return {outcome: sum(verdict.outcome is outcome for verdict in verdicts) for outcome in Outcome}


def headline(results: Results) -> str:
    """The run in a few words."""
    number = counts(results.verdicts)
    if not results.verdicts:
        return "Nothing was judged"
    if number[Outcome.FAIL]:
        return f"{counted(number[Outcome.FAIL], 'check')} failed"
    if not number[Outcome.PASS]:
        return "Nothing failed, and nothing was shown"
    return "Nothing failed" if results.complete else "Nothing failed so far"


def tally(results: Results) -> str:
    """ "31 passed, 3 failed, 4 inconclusive, 6 unsupported", outcomes that did not occur left out."""
    number = counts(results.verdicts)
    words = {
        Outcome.PASS: "passed",
        Outcome.FAIL: "failed",
        Outcome.INCONCLUSIVE: "inconclusive",
        Outcome.UNSUPPORTED: "unsupported",
    }
    return ", ".join(f"{number[outcome]:,} {word}" for outcome, word in words.items() if number[outcome])


def subject(results: Results) -> str:
    """The server and its version, as one name."""
    target = results.target
    return f"{target.server} {target.version}" if target.version else target.server


def place(verdict: VerdictEntry) -> str:
    """Tier and part of a verdict: "8k, streamed"; empty where it has neither."""
    return ", ".join(part for part in (verdict.tier, verdict.part) if part)
