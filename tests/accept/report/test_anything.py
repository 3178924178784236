"""Whatever a run leaves behind, every report can be made of it and is well formed."""

from __future__ import annotations

import math
from xml.etree import ElementTree as ET

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headstart.accept.report.files import as_json
from headstart.accept.report.junit import render as junit
from headstart.accept.report.page import render as page
from headstart.accept.report.results import (
    CalibrationEntry,
    CaseEntry,
    GateEntry,
    MachineEntry,
    Results,
    SweepEntry,
    TargetEntry,
    TierEntry,
    VerdictEntry,
)
from headstart.accept.report.side_by_side import compare
from headstart.accept.report.side_by_side_table import compared
from headstart.accept.report.table import Style, table
from headstart.accept.verdict import Outcome
from tests.accept.report.document import Document

TEXT = st.text(st.characters(codec=None), max_size=12) | st.sampled_from(
    ["8k", "cold", "gap_sweep", "0001", ""]
)
NUMBER = st.floats(0, 1e4) | st.sampled_from([math.nan, math.inf, -1.0, 0.0, 1e-9, 1e300])
COUNT = st.integers(-5, 1 << 40)
FIGURES = st.dictionaries(TEXT, st.none() | st.booleans() | COUNT | NUMBER | TEXT, max_size=3)
BY_TYPE = {str: TEXT, float: NUMBER, int: COUNT, bool: st.booleans(), Outcome: st.sampled_from(Outcome)}


def made(kind: type, **given_: st.SearchStrategy[object]) -> st.SearchStrategy[object]:
    """Any instance of an entry: plain fields by their annotation, others as given."""
    chosen = dict(given_)
    for name, field in kind.__dataclass_fields__.items():  # type: ignore[attr-defined]
        kinds = str(field.type).split(" | ")
        of = next((make for python, make in BY_TYPE.items() if python.__name__ == kinds[0]), None)
        if name not in chosen and of is not None:
            chosen[name] = of | st.none() if "None" in kinds else of
    return st.builds(kind, **chosen)


def some(strategy: st.SearchStrategy[object]) -> st.SearchStrategy[tuple[object, ...]]:
    return st.lists(strategy, max_size=3).map(tuple)


RESULTS = made(
    Results,
    target=made(TargetEntry, facts=st.dictionaries(TEXT, TEXT, max_size=2)),
    machine=made(MachineEntry, variables=some(TEXT)),
    calibration=st.none() | made(CalibrationEntry),
    tiers=some(
        made(
            TierEntry,
            skipped=st.none() | TEXT,
            cold_s=some(NUMBER),
            warm_s=some(NUMBER),
            off_s=some(NUMBER),
            warm_reused=some(st.none() | COUNT),
        )
    ),
    gates=some(made(GateEntry)),
    verdicts=some(made(VerdictEntry, figures=FIGURES, cases=some(TEXT))),
    cases=some(made(CaseEntry)),
    sweep=some(made(SweepEntry)),
    notes=some(TEXT),
)
UNHURRIED = settings(
    deadline=None, max_examples=40, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)


@UNHURRIED
@given(RESULTS)
def test_reports_of_anything_are_well_formed(results: Results) -> None:
    Document(page(results))
    ET.fromstring(junit(results).encode())
    as_json(results).encode()


@UNHURRIED
@given(RESULTS, RESULTS, st.integers(20, 120), st.booleans())
def test_text_of_anything_is_fit_for_a_terminal(a: Results, b: Results, width: int, colour: bool) -> None:
    for text in (table(a, Style(width, colour)), compared(compare(a, b, anyway=True), Style(width, colour))):
        text.encode()
        assert colour or "\x1b" not in text
