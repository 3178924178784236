"""Results as JUnit XML, for continuous integration: a suite a gate, a case a verdict.

FAIL is a failure. INCONCLUSIVE and UNSUPPORTED are skipped cases whose message says which and why; so is
a gate that was not reached.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from xml.etree import ElementTree as ET

from headstart.accept.report.plain import plain
from headstart.accept.report.results import Results, VerdictEntry
from headstart.accept.report.summary import GateGroup, by_gate, counts, place, subject
from headstart.accept.report.units import figure
from headstart.accept.verdict import Outcome

_NO_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def render(results: Results) -> str:
    """The whole document, with its declaration."""
    number = counts(results.verdicts)
    groups = by_gate(results)
    skipped = sum(_skipped(group) for group in groups)
    root = ET.Element(
        "testsuites",
        {
            "name": _text(f"headstart accept: {subject(results)}"),
            "tests": str(len(results.verdicts) + sum(not group.verdicts for group in groups)),
            "failures": str(number[Outcome.FAIL]),
            "errors": "0",
            "skipped": str(skipped),
            "time": f"{results.took_s:.3f}",
        },
    )
    spent = {case.id: case.total_s for case in results.cases}
    for group in groups:
        root.append(_suite(group, results, spent))
    ET.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ET.tostring(root, encoding="unicode") + "\n"


def _suite(group: GateGroup, results: Results, spent: Mapping[str, float]) -> ET.Element:
    gate = group.gate
    suite = ET.Element(
        "testsuite",
        {
            "name": _text(gate.title or gate.name),
            "tests": str(max(1, len(group.verdicts))),
            "failures": str(counts(group.verdicts)[Outcome.FAIL]),
            "errors": "0",
            "skipped": str(_skipped(group)),
            "time": f"{gate.took_s or 0.0:.3f}",
            "timestamp": _stamp(results.started + (gate.started_s or 0.0)),
        },
    )
    _properties(suite, _about(results))
    for verdict in group.verdicts:
        suite.append(_case(verdict, spent))
    if not group.verdicts:
        case = ET.SubElement(suite, "testcase", {"classname": _class(gate.name), "name": _text(gate.name)})
        ET.SubElement(case, "skipped", {"message": "not reached: the run was stopped before this gate"})
    return suite


def _case(verdict: VerdictEntry, spent: Mapping[str, float]) -> ET.Element:
    case = ET.Element(
        "testcase",
        {
            "classname": _class(verdict.gate),
            "name": _text(place(verdict) or verdict.gate),
            "time": f"{sum(spent.get(name, 0.0) for name in dict.fromkeys(verdict.cases)):.3f}",
        },
    )
    _properties(case, {name: _value(value) for name, value in verdict.figures.items()})
    message = _text(verdict.reason)
    if verdict.outcome is Outcome.FAIL:
        failure = ET.SubElement(case, "failure", {"type": _text(verdict.gate), "message": message})
        failure.text = _text(_detail(verdict))
    elif verdict.outcome is not Outcome.PASS:
        ET.SubElement(case, "skipped", {"message": f"{verdict.outcome}: {message}"})
    return case


def _detail(verdict: VerdictEntry) -> str:
    figures = [": ".join(figure(name, value)) for name, value in verdict.figures.items()]
    evidence = [f"evidence: {', '.join(f'cases/{case}' for case in verdict.cases)}"] if verdict.cases else []
    return " | ".join([verdict.reason, *figures, *evidence])


def _about(results: Results) -> dict[str, str]:
    target = results.target
    facts = {
        "url": target.url,
        "server": subject(results),
        "model": target.model,
        "model digest": target.digest,
        "context tokens": target.context_tokens,
        "complete": results.complete,
    }
    return {name: _value(value) for name, value in facts.items() if value is not None}


def _properties(parent: ET.Element, values: Mapping[str, str]) -> None:
    if values:
        properties = ET.SubElement(parent, "properties")
        for name, value in values.items():
            ET.SubElement(properties, "property", {"name": _text(name), "value": _text(value)})


def _skipped(group: GateGroup) -> int:
    number = counts(group.verdicts)
    return number[Outcome.INCONCLUSIVE] + number[Outcome.UNSUPPORTED] + (not group.verdicts)


def _value(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else "" if value is None else str(value)


def _class(gate: str) -> str:
    return _text(f"headstart.accept.{gate}")


def _text(text: str) -> str:
    return _NO_XML.sub("\ufffd", plain(text))


def _stamp(unix_s: float) -> str:
    try:
        return datetime.fromtimestamp(unix_s, UTC).strftime("%Y-%m-%dT%H:%M:%S")
    except (ValueError, OverflowError, OSError):
        return "1970-01-01T00:00:00"
