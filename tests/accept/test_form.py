"""results.json: its schema is published, and it reads back to what was written."""

from __future__ import annotations

import json

import pytest

from headstart.accept.report.form import SCHEMA, from_json, schema
from headstart.accept.report.results import FORMAT, MachineEntry, Results, TargetEntry, VerdictEntry
from headstart.accept.verdict import Outcome

RESULTS = Results(
    format=FORMAT,
    tool_version="1",
    started=1.0,
    took_s=2.0,
    complete=True,
    salt="s",
    target=TargetEntry("u", "s", None, None, "w", None, None, None, None, {"a": "b"}),
    machine=MachineEntry("l", "x", 2, None, "3", ()),
    calibration=None,
    verdicts=(
        VerdictEntry("cold", "cold", "8k", "", Outcome.FAIL, "why", {"gap_tokens": 3, "x": None}, ("1",)),
    ),
)


def test_the_schema_file_is_the_classes() -> None:
    assert json.loads(SCHEMA.read_text()) == schema()


def test_results_come_back() -> None:
    assert from_json(json.loads(json.dumps(RESULTS.to_json()))) == RESULTS


@pytest.mark.parametrize(("field", "value"), [("format", 99), ("salt", 3), ("verdicts", {}), ("extra", 1)])
def test_other_shapes_are_refused_with_the_place(field: str, value: object) -> None:
    data = RESULTS.to_json() | {field: value}
    with pytest.raises(ValueError, match=field):
        from_json(data)
