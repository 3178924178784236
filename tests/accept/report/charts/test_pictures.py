from __future__ import annotations

from dataclasses import replace
from xml.etree import ElementTree as ET

import pytest
from markupsafe import Markup

from headstart.accept.report.charts.bars import Bar, bars
from headstart.accept.report.charts.svg import element, picture, text, titled
from headstart.accept.report.charts.sweep import sweep
from headstart.accept.report.charts.timeline import timeline
from headstart.accept.report.charts.waits import Wait, waits
from headstart.accept.report.results import SweepEntry
from tests.accept.report import made_up

SVG = "{http://www.w3.org/2000/svg}"


def drawn(markup: Markup) -> ET.Element:
    return ET.fromstring(markup)


def shapes(markup: Markup, tag: str, class_: str) -> list[ET.Element]:
    return [e for e in drawn(markup).iter(SVG + tag) if class_ in e.get("class", "").split()]


def lines_of(markup: Markup) -> list[str]:
    return [e.text or "" for e in drawn(markup).iter(SVG + "text")]


def test_attributes_and_text_are_escaped() -> None:
    made = picture(1.0, 2.5, 'a "quoted" <says>', [titled("<b>", text(1.005, 2, "</text>&", "x"))])
    root = drawn(made)
    assert root.get("viewBox") == "0 0 1 2.5"
    assert root.get("aria-label") == 'a "quoted" <says>'
    assert [e.text for e in root.iter(SVG + "text")] == ["</text>&"]
    assert element("g", class_=None, stroke_width=2) == '<g stroke-width="2"/>'
    assert element("g", x=float("nan")) == '<g x="0"/>'


def test_a_bar_is_as_long_as_its_tokens() -> None:
    made = bars(
        [Bar("g", "all", 1000, 0), Bar("g", "most", 1000, 750), Bar("g", "half as long", 500, 500)], "8k"
    )
    reused = [float(e.get("width", "")) for e in shapes(made, "rect", "reused")]
    read = [float(e.get("width", "")) for e in shapes(made, "rect", "read")]
    assert reused == pytest.approx([read[0] * 0.75, read[0] * 0.5])
    assert read == pytest.approx([read[0], read[0] * 0.25])
    assert lines_of(made).count("g") == 1


def test_one_token_read_can_be_seen() -> None:
    made = bars([Bar("g", "warm", 100_000, 99_999)], "128k")
    assert float(shapes(made, "rect", "read")[0].get("width", "")) >= 1.5
    assert "99,999 reused, 1 read" in lines_of(made)


def test_unknown_zero_and_failed_look_different() -> None:
    made = bars(
        [
            Bar("g", "unknown", 100, None),
            Bar("g", "nothing known", None, None),
            Bar("g", "more than all", 100, 120),
            Bar("g", "hung", None, None, "hung: nothing came for 600 s"),
            Bar("g", "stopped", None, None, "cancelled: after 2 s"),
        ],
        "8k",
    )
    assert len(shapes(made, "rect", "unknown")) == 1
    assert len(shapes(made, "path", "mark-failed")) == 1
    said = lines_of(made)
    for words in (
        "100 sent, reuse not stated",
        "not stated",
        "no whole reply",
        "cancelled on purpose",
        "120 reused, 0 read",
    ):
        assert words in said


def test_waits_show_every_sample_and_the_median() -> None:
    made = waits(
        [
            Wait("8k", "cold", "cold", (10.0, 12.0, 11.0)),
            Wait("8k", "warm", "warm", (0.0,)),
            Wait("8k", "off", "off", ()),
        ]
    )
    assert len(shapes(made, "circle", "cold")) == 3
    places = sorted(float(e.get("cx", "")) for e in shapes(made, "circle", "cold"))
    assert float(shapes(made, "line", "median")[0].get("x1", "")) == pytest.approx(places[1])
    assert "no sample" in lines_of(made)
    assert waits([Wait("8k", "cold", "cold", ())]) == waits([]) == ""


def test_the_sweep_marks_gaps_and_what_is_not_known() -> None:
    points = [
        SweepEntry(1000, 1000, 768, 232, 0.3, "a"),
        SweepEntry(2000, 2040, 1792, 208, 0.3, "b"),
        SweepEntry(3000, 3000, None, None, 0.3, "c"),
    ]
    made = sweep(points, 256)
    assert len(shapes(made, "circle", "point")) == 4
    assert len(shapes(made, "path", "mark-unknown")) == 2
    assert len(shapes(made, "line", "allowance")) == 1
    assert "allowed: 256" in lines_of(made)
    assert not shapes(sweep(points, None), "line", "allowance")
    assert sweep([], 256) == ""


def test_a_perfect_sweep_lies_on_the_diagonal_and_on_the_axis() -> None:
    made = sweep([SweepEntry(n, n, n, 0, 0.1, "a") for n in (0, 500, 1000)], 1)
    gaps = [e for e in shapes(made, "line", "gap") if e.get("y1") != e.get("y2")]
    assert gaps == []


def test_the_timeline_sets_exchanges_of_one_moment_side_by_side() -> None:
    cases = made_up.cases()
    made = timeline(cases, {"honesty": "honesty"}, 0.0)
    whole = shapes(made, "rect", "whole")
    last = max(whole, key=lambda e: float(e.get("x", "")))
    together = [e for e in whole if e.get("x") == last.get("x")]
    assert len({e.get("y") for e in together}) == 3
    assert len(shapes(made, "path", "mark-failed")) == 2
    cancelled = replace(cases[0], failure="cancelled: after 2 s")
    assert len(shapes(timeline([cancelled], {}, 9.0), "rect", "stopped")) == 1
    assert timeline([], {}, 5.0) == ""


def test_every_exchange_has_a_tooltip() -> None:
    cases = made_up.cases()
    tips = [e.text or "" for e in drawn(timeline(cases, {}, 0.0)).iter(SVG + "title")]
    assert len(tips) == len(cases)
    assert any("first token after" in tip for tip in tips)
