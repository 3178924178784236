from __future__ import annotations

from xml.etree import ElementTree as ET

import pytest

from headstart.accept.report.junit import render as junit
from headstart.accept.verdict import Outcome
from tests.accept.report import made_up


@pytest.mark.parametrize("name", made_up.ALL)
def test_it_is_xml_and_its_numbers_add_up(name: str) -> None:
    root = ET.fromstring(junit(made_up.ALL[name]()).encode())
    for element in (root, *root.iter("testsuite")):
        assert element.get("tests") == str(len(list(element.iter("testcase"))))
        assert element.get("failures") == str(len(list(element.iter("failure"))))
        assert element.get("skipped") == str(len(list(element.iter("skipped"))))
        assert float(element.get("time", "")) >= 0


def test_each_verdict_is_a_case_of_its_gates_suite() -> None:
    results = made_up.failing()
    root = ET.fromstring(junit(results))
    assert [suite.get("name") for suite in root] == [title for _, title, _, _ in made_up.GATES]
    assert len(list(root.iter("testcase"))) == len(results.verdicts)
    edited = root.find(".//testcase[@classname='headstart.accept.middle_edit'][@name='8k, edited']")
    assert edited is not None
    failure = edited.find("failure")
    assert failure is not None
    assert failure.get("message", "").startswith("the prompts part at 3,968")
    assert "gap: 3,968 tokens" in (failure.text or "")
    assert "cases/0008" in (failure.text or "")
    assert edited.find("properties/property[@name='gap_tokens'][@value='3968']") is not None


def test_what_shows_nothing_is_skipped_with_the_reason() -> None:
    messages = [skip.get("message", "") for skip in ET.fromstring(junit(made_up.failing())).iter("skipped")]
    assert messages == [
        "INCONCLUSIVE: one of 3 replies had no cached_tokens: unknown is neither 0 nor a number",
        "UNSUPPORTED: needs a server of its own to kill: --spawn 'COMMAND'",
    ]


def test_gates_that_were_not_reached_are_skipped_cases() -> None:
    root = ET.fromstring(junit(made_up.stopped()))
    skipped = [case.get("name") for case in root.iter("testcase") if case.find("skipped") is not None]
    assert skipped == [name for name, *_ in made_up.GATES[3:]]


def test_text_of_a_server_stays_text() -> None:
    text = junit(made_up.hostile())
    root = ET.fromstring(text.encode())
    assert not list(root.iter("script"))
    assert "\x1b" not in text
    named = [case for case in root.iter("testcase") if "<script>" in case.get("name", "")]
    assert len(named) == len(Outcome)
    assert sum(case.find("failure") is not None for case in named) == 1
