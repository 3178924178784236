"""The pages about accept name every gate, server, outcome and field there is."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

import pytest

from headstart.accept.exchange import FailureKind
from headstart.accept.gates import NAMES as GATES
from headstart.accept.report import results
from headstart.accept.report.files import JUNIT, PAGE, RESULTS
from headstart.accept.servers import NAMES as SERVERS
from headstart.accept.verdict import Outcome

DOCS = Path(__file__).parents[3] / "docs"
GUIDE = (DOCS / "guides" / "accept.md").read_text()
REFERENCE = (DOCS / "reference" / "accept-results.md").read_text()
ENTRIES = [
    results.Results,
    results.TargetEntry,
    results.MachineEntry,
    results.TierEntry,
    results.CalibrationEntry,
    results.VerdictEntry,
    results.CaseEntry,
    results.SweepEntry,
    results.GateEntry,
]


def section(title: str) -> str:
    found = re.search(rf"^### {title}\n(.*?)(?=^##|\Z)", GUIDE, re.M | re.S)
    assert found, title
    return found[1]


@pytest.mark.parametrize("name", GATES)
def test_every_gate_has_a_section_that_tells_its_verdicts(name: str) -> None:
    assert any(f"**{outcome}" in section(name) for outcome in Outcome)


def test_gates_stand_in_the_order_they_run() -> None:
    assert [name for name in re.findall(r"^### (\w+)$", GUIDE, re.M) if name in GATES] == list(GATES)


@pytest.mark.parametrize("name", SERVERS)
def test_every_server_has_a_section(name: str) -> None:
    assert len(section(name)) > 100


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.__name__)
def test_every_field_is_in_the_reference(entry: type) -> None:
    for field in fields(entry):
        assert f"`{field.name}`" in REFERENCE, field.name


def test_every_outcome_failure_and_file_is_in_the_reference() -> None:
    for name in [*(f"`{word}`" for word in (*Outcome, *FailureKind)), RESULTS, JUNIT, PAGE]:
        assert name in REFERENCE, name
    assert f"`format` is {results.FORMAT}" in REFERENCE
