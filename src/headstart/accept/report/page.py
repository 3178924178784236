"""The run as one HTML page for a person: everything inside it, nothing fetched, no script.

Text from servers is escaped by the template (autoescape) and by `charts.svg`; control characters are made
visible first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Final
from urllib.parse import quote

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from headstart.accept.exchange import FailureKind
from headstart.accept.report import summary, units
from headstart.accept.report.charts.bars import Bar, bars
from headstart.accept.report.charts.sweep import sweep
from headstart.accept.report.charts.timeline import timeline
from headstart.accept.report.charts.waits import Wait, waits
from headstart.accept.report.plain import clipped, plain, sentence
from headstart.accept.report.results import CaseEntry, Results, TierEntry
from headstart.accept.verdict import Outcome, together

_TELLING_GATES: Final = ("cold", "exact_repeat", "append", "middle_edit", "restart", "crash")
_MOST_BARS: Final = 36
_MOST_MORE_BARS: Final = 240


@dataclass(frozen=True)
class TierView:
    """A tier with its bars: the gates that tell most, and the others."""

    entry: TierEntry
    telling: Markup
    others: Markup
    other_count: int
    left_out: int


def render(results: Results) -> str:
    """The whole document."""
    return _environment().get_template("page.html").render(view(results))


def view(results: Results) -> dict[str, Any]:
    """What the template is given."""
    groups = summary.by_gate(results)
    titles = {group.gate.name: group.gate.title for group in groups}
    rows = _wait_rows(results.tiers)
    return {
        "results": results,
        "subject": summary.subject(results),
        "headline": summary.headline(results),
        "counts": summary.counts(results.verdicts),
        "mood": _mood(results),
        "groups": groups,
        "failures": [verdict for verdict in results.verdicts if verdict.outcome is Outcome.FAIL],
        "columns": _columns(results),
        "matrix": _matrix(results),
        "waits": waits(rows),
        "wait_rows": [row for row in rows if row.samples],
        "savings": _savings(results.tiers),
        "tiers": [_tier_view(tier, results, titles) for tier in results.tiers if tier.skipped is None],
        "skipped": [tier for tier in results.tiers if tier.skipped is not None],
        "sweep": sweep(results.sweep, _allowance(results)),
        "timeline": timeline(results.cases, titles, results.took_s),
        "known_cases": frozenset(case.id for case in results.cases),
        "titles": titles,
    }


@cache
def _environment() -> Environment:
    made = Environment(
        loader=PackageLoader("headstart.accept.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=lambda value: plain(value) if type(value) is str else value,
    )
    made.filters.update(
        seconds=units.seconds,
        number=units.number,
        memory=units.memory,
        moment=units.moment,
        spread=units.spread,
        figure=lambda pair: units.figure(*pair),
        clipped=clipped,
        sentence=sentence,
        folder=lambda case: f"cases/{quote(case, safe='')}/",
        place=summary.place,
        failed=lambda case: case.failure is not None and not case.failure.startswith(FailureKind.CANCELLED),
    )
    made.globals.update(counted=units.counted)
    return made


def _mood(results: Results) -> Outcome:
    outcomes = [verdict.outcome for verdict in results.verdicts]
    if Outcome.FAIL in outcomes:
        return Outcome.FAIL
    return Outcome.PASS if Outcome.PASS in outcomes else Outcome.INCONCLUSIVE


def _columns(results: Results) -> list[str]:
    """Tiers that have verdicts, in the tiers' order."""
    used = dict.fromkeys(verdict.tier for verdict in results.verdicts if verdict.tier)
    return [*(tier.name for tier in results.tiers if tier.name in used), *_strangers(used, results)]


def _strangers(used: Mapping[str, None], results: Results) -> list[str]:
    known = {tier.name for tier in results.tiers}
    return [name for name in used if name not in known]


def _matrix(results: Results) -> dict[tuple[str, str], Outcome]:
    """The outcome that stands for each gate and tier; tier "" for verdicts without one."""
    found: dict[tuple[str, str], list[Outcome]] = {}
    for verdict in results.verdicts:
        found.setdefault((verdict.gate, verdict.tier or ""), []).append(verdict.outcome)
    return {place: together(outcomes) for place, outcomes in found.items()}


def _wait_rows(tiers: Sequence[TierEntry]) -> list[Wait]:
    rows = []
    for tier in tiers:
        if tier.skipped is None and (tier.cold_s or tier.warm_s or tier.off_s):
            rows += [
                Wait(tier.name, "cold", "cold", tier.cold_s),
                Wait(tier.name, "warm", "warm", tier.warm_s),
            ]
            rows += [Wait(tier.name, "cache off", "off", tier.off_s)] if tier.off_s else []
    return rows


def _savings(tiers: Sequence[TierEntry]) -> list[tuple[str, float, float, float]]:
    """By tier: cold and warm medians and how many times shorter warm is; tiers that have both."""
    found = []
    for tier in tiers:
        cold, warm = units.middle(tier.cold_s), units.middle(tier.warm_s)
        if cold and warm:
            found.append((tier.name, cold, warm, cold / warm))
    return found


def _tier_view(tier: TierEntry, results: Results, titles: Mapping[str, str]) -> TierView:
    own = [case for case in results.cases if case.tier == tier.name]
    telling = [case for case in own if case.gate in _TELLING_GATES][:_MOST_BARS]
    shown = {case.id for case in telling}
    others = [case for case in own if case.id not in shown]
    return TierView(
        tier,
        _bars(telling, tier, titles),
        _bars(others[:_MOST_MORE_BARS], tier, titles),
        min(len(others), _MOST_MORE_BARS),
        max(0, len(others) - _MOST_MORE_BARS),
    )


def _bars(cases: Sequence[CaseEntry], tier: TierEntry, titles: Mapping[str, str]) -> Markup:
    if not cases:
        return Markup("")
    return bars([_bar(case, titles) for case in cases], tier.name)


def _bar(case: CaseEntry, titles: Mapping[str, str]) -> Bar:
    return Bar(
        titles.get(case.gate, case.gate), case.label or case.id, case.prompt_tokens, case.reused, case.failure
    )


def _allowance(results: Results) -> int | None:
    """The gap sweep's own figure; else the block size the server states."""
    for verdict in results.verdicts:
        value = verdict.figures.get("allowance_tokens")
        if verdict.gate == "gap_sweep" and isinstance(value, int) and not isinstance(value, bool):
            return value
    return results.target.block_tokens
