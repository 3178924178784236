from __future__ import annotations

import json
from typing import Any

import pytest

from headstart.accept.report.form import SCHEMA, from_json, schema
from tests.accept.report import made_up


def test_the_published_schema_is_that_of_the_classes() -> None:
    assert json.loads(SCHEMA.read_text()) == schema()


@pytest.mark.parametrize("name", made_up.ALL)
def test_there_and_back(name: str) -> None:
    results = made_up.ALL[name]()
    assert from_json(json.loads(json.dumps(results.to_json()))) == results


def broken(change: Any) -> dict[str, Any]:
    data = json.loads(json.dumps(made_up.failing().to_json()))
    change(data)
    return data


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda d: d.update(format=2), "format is 2; this version reads format 1"),
        (lambda d: d.pop("salt"), "results: salt is missing"),
        (lambda d: d.update(mood="good"), "results: mood is not a field"),
        (lambda d: d.update(took_s="long"), r"results.took_s: expected float, found 'long'"),
        (lambda d: d["target"].update(slots=True), "results.target.slots"),
        (
            lambda d: d["verdicts"][2].update(outcome="MAYBE"),
            r"results.verdicts\[2\].outcome: 'MAYBE' is none of PASS",
        ),
        (lambda d: d["verdicts"][0].update(outcome=["PASS"]), r"results.verdicts\[0\].outcome"),
        (lambda d: d["verdicts"][0]["figures"].update(x=[1]), r"results.verdicts\[0\].figures.x"),
        (lambda d: d.update(cases={}), "results.cases: expected a list"),
        (lambda d: d.update(machine=None), "results.machine: expected an object"),
        (lambda d: d["target"].update(facts=[]), "results.target.facts: expected an object"),
        (lambda d: d["cases"][1].update(reused=0.5), r"results.cases\[1\].reused"),
    ],
)
def test_the_place_that_is_wrong_is_named(change: Any, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        from_json(broken(change))
