"""Two runs side by side: verdicts, figures and times, and whether they may be compared at all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from headstart.accept.report.plain import plain
from headstart.accept.report.results import MachineEntry, Results, TierEntry, VerdictEntry
from headstart.accept.report.units import counted, memory, middle
from headstart.accept.verdict import Figure, Outcome, worst
from headstart.errors import ConfigError

_MEMORY_TOLERANCE = 0.02


class Change(StrEnum):
    """What became of a verdict from A to B. MOVED: other, and neither side is a failure."""

    SAME = "same"
    BETTER = "better"
    WORSE = "worse"
    MOVED = "moved"
    ONLY_A = "only in A"
    ONLY_B = "only in B"


@dataclass(frozen=True)
class Pair:
    """A figure on both sides; None where a side has none."""

    name: str
    a: Figure
    b: Figure

    @property
    def ratio(self) -> float | None:
        """B / A, where both are numbers and A is not 0."""
        if isinstance(self.a, bool) or isinstance(self.b, bool):
            return None
        if isinstance(self.a, int | float) and isinstance(self.b, int | float) and self.a:
            return self.b / self.a
        return None


@dataclass(frozen=True)
class Row:
    """One verdict on both sides."""

    gate: str
    title: str
    tier: str | None
    part: str
    a: VerdictEntry | None
    b: VerdictEntry | None

    @property
    def change(self) -> Change:
        if self.a is None or self.b is None:
            return Change.ONLY_B if self.a is None else Change.ONLY_A
        if self.a.outcome is self.b.outcome:
            return Change.SAME
        if Outcome.FAIL not in (self.a.outcome, self.b.outcome):
            return Change.MOVED
        return Change.WORSE if worst([self.a.outcome, self.b.outcome]) is self.b.outcome else Change.BETTER

    @property
    def figures(self) -> tuple[Pair, ...]:
        """Every figure either side has, A's order first."""
        a: Mapping[str, Figure] = self.a.figures if self.a else {}
        b: Mapping[str, Figure] = self.b.figures if self.b else {}
        return tuple(Pair(name, a.get(name), b.get(name)) for name in dict.fromkeys([*a, *b]))


@dataclass(frozen=True)
class TierPair:
    """Medians of a tier's times to the first token on both sides, and tokens reused when warm."""

    name: str
    figures: tuple[Pair, ...]


@dataclass(frozen=True)
class Comparison:
    """`objections`: why the two should not be compared; empty unless that was overruled. `remarks`: what
    differs and is to be kept in mind."""

    a: Results
    b: Results
    rows: tuple[Row, ...]
    tiers: tuple[TierPair, ...]
    objections: tuple[str, ...]
    remarks: tuple[str, ...]

    def changed(self, change: Change) -> tuple[Row, ...]:
        return tuple(row for row in self.rows if row.change is change)

    def to_json(self) -> dict[str, Any]:
        """Plain dicts and lists, fit for json.dump."""
        return {
            "objections": list(self.objections),
            "remarks": list(self.remarks),
            "tiers": [{"name": tier.name, "figures": _pairs(tier.figures)} for tier in self.tiers],
            "verdicts": [
                {
                    "gate": row.gate,
                    "tier": row.tier,
                    "part": row.part,
                    "change": row.change.value,
                    "a": row.a.outcome.value if row.a else None,
                    "b": row.b.outcome.value if row.b else None,
                    "figures": _pairs(row.figures),
                }
                for row in self.rows
            ],
        }


def compare(a: Results, b: Results, *, anyway: bool = False) -> Comparison:
    """Sets `a` and `b` side by side.

    Raises ConfigError, naming every reason, where they differ in what figures depend on: context, model,
    machine, tiers. `anyway` keeps the reasons as `objections` instead.
    """
    found = objections(a, b)
    if found and not anyway:
        raise ConfigError(
            f"these runs cannot be compared: {'; '.join(plain(reason) for reason in found)} "
            "(--anyway sets them side by side all the same)"
        )
    return Comparison(a, b, _rows(a, b), _tiers(a, b), found, _remarks(a, b))


def objections(a: Results, b: Results) -> tuple[str, ...]:
    """Why figures of `a` and `b` say nothing about each other; empty where they do."""
    found: list[str] = []
    if a.target.context_tokens != b.target.context_tokens:
        found.append(
            f"context: {_tokens(a.target.context_tokens)} in A, {_tokens(b.target.context_tokens)} in B"
        )
    found += _model(a, b)
    found += _machine(a.machine, b.machine)
    tiers = [", ".join(_sizes(run)) or "none" for run in (a, b)]
    if tiers[0] != tiers[1]:
        found.append(f"tiers that ran: {tiers[0]} in A, {tiers[1]} in B")
    return tuple(found)


def _model(a: Results, b: Results) -> list[str]:
    one, other = a.target.digest, b.target.digest
    if one is not None and other is not None:
        return [] if one == other else [f"model digest: {one[:16]} in A, {other[:16]} in B"]
    if one is None and other is None:
        same = a.target.model == b.target.model
        return [] if same else [f"model: {a.target.model} in A, {b.target.model} in B, and no digests"]
    known, unknown = ("A", "B") if one is not None else ("B", "A")
    return [f"model digest: known in {known} only; --model-dir gives one to {unknown}"]


def _machine(a: MachineEntry, b: MachineEntry) -> list[str]:
    found = []
    for name in ("system", "processor", "cores"):
        one, other = getattr(a, name), getattr(b, name)
        if one != other:
            found.append(f"machine, {name}: {one} in A, {other} in B")
    one, other = a.memory_bytes, b.memory_bytes
    if one is not None and other is not None and abs(one - other) > _MEMORY_TOLERANCE * max(one, other):
        found.append(f"machine, memory: {memory(one)} in A, {memory(other)} in B")
    return found


def _remarks(a: Results, b: Results) -> tuple[str, ...]:
    found = [
        f"{side} was stopped before its end: what is missing there is not known"
        for side, run in (("A", a), ("B", b))
        if not run.complete
    ]
    pairs = {
        "wire": (a.target.wire, b.target.wire),
        "slots": (a.target.slots, b.target.slots),
        "question": (_question(a), _question(b)),
        "headstart version": (a.tool_version, b.tool_version),
        "environment variables": (_names(a), _names(b)),
    }
    found += [f"{name}: {one} in A, {other} in B" for name, (one, other) in pairs.items() if one != other]
    if a.target.digest is None and b.target.digest is None:
        found.append("neither run knows the model's digest: the same name can hold other weights")
    return tuple(found)


def _rows(a: Results, b: Results) -> tuple[Row, ...]:
    left, right = _by_key(a.verdicts), _by_key(b.verdicts)
    rows = []
    for key in dict.fromkeys([*left, *right]):
        one, other = left.get(key), right.get(key)
        named = one or other
        assert named is not None
        rows.append(Row(named.gate, named.title, named.tier, named.part, one, other))
    order = list(dict.fromkeys(entry for run in (a, b) for entry in (gate.name for gate in run.gates)))
    return tuple(sorted(rows, key=lambda row: order.index(row.gate) if row.gate in order else len(order)))


def _by_key(verdicts: Sequence[VerdictEntry]) -> dict[tuple[str, str | None, str, int], VerdictEntry]:
    found: dict[tuple[str, str | None, str, int], VerdictEntry] = {}
    for verdict in verdicts:
        again = 0
        while (key := (verdict.gate, verdict.tier, verdict.part, again)) in found:
            again += 1
        found[key] = verdict
    return found


def _tiers(a: Results, b: Results) -> tuple[TierPair, ...]:
    left = {tier.name: tier for tier in a.tiers}
    right = {tier.name: tier for tier in b.tiers}
    return tuple(
        TierPair(name, _times(left.get(name), right.get(name))) for name in dict.fromkeys([*left, *right])
    )


def _times(a: TierEntry | None, b: TierEntry | None) -> tuple[Pair, ...]:
    def medians(tier: TierEntry | None) -> dict[str, float | None]:
        if tier is None:
            return {}
        return {
            "prompt_tokens": tier.prompt_tokens,
            "cold_s": middle(tier.cold_s),
            "warm_s": middle(tier.warm_s),
            "cache_off_s": middle(tier.off_s),
            "warm_reused_tokens": middle([n for n in tier.warm_reused if n is not None]),
        }

    one, other = medians(a), medians(b)
    pairs = [Pair(name, one.get(name), other.get(name)) for name in dict.fromkeys([*one, *other])]
    return tuple(pair for pair in pairs if pair.a is not None or pair.b is not None)


def _sizes(run: Results) -> list[str]:
    return [f"{tier.name} ({tier.nominal_tokens:,})" for tier in run.tiers if tier.skipped is None]


def _pairs(pairs: Sequence[Pair]) -> dict[str, dict[str, Figure]]:
    return {pair.name: {"a": pair.a, "b": pair.b} for pair in pairs}


def _tokens(n: int | None) -> str:
    return "not known" if n is None else counted(n, "token")


def _question(run: Results) -> str | None:
    return run.calibration.question if run.calibration else None


def _names(run: Results) -> str:
    return ", ".join(sorted(run.machine.variables)) or "none"
