from __future__ import annotations

import re
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

import headstart.accept.report.page as page_module
from headstart.accept.report.page import render as page
from headstart.accept.report.results import Results
from headstart.accept.verdict import Outcome
from tests.accept.report import made_up
from tests.accept.report.colours import EYES, apart, contrast, schemes
from tests.accept.report.document import Document

CSS = (Path(page_module.__file__).parent / "templates" / "page.css").read_text()
PAGES = {name: page(make()) for name, make in made_up.ALL.items()}


@pytest.fixture(params=PAGES)
def html(request: pytest.FixtureRequest) -> str:
    return PAGES[request.param]


def test_it_is_well_nested_and_every_id_is_one_of_a_kind(html: str) -> None:
    ids = Document(html).attributes("id")
    assert len(ids) == len(set(ids))
    assert all(re.fullmatch(r"[\w%.\-]+", name) for name in ids)


def test_it_fetches_nothing_and_runs_nothing(html: str) -> None:
    document = Document(html)
    assert not {tag for tag, _ in document.elements} & {
        "script",
        "iframe",
        "link",
        "img",
        "object",
        "embed",
        "form",
    }
    assert not [name for _, values in document.elements for name in values if name.startswith("on")]
    assert not document.attributes("src")
    for target in document.attributes("href"):
        assert re.match(r"#|cases/[\w%.\-]+/$", target), target
    assert not re.search(
        r"@import|url\((?!#)|expression\(|javascript:", re.sub(r"<body>.*", "", html, flags=re.S)
    )
    assert "default-src 'none'" in html


def test_every_link_inside_the_page_leads_somewhere(html: str) -> None:
    document = Document(html)
    ids = set(document.attributes("id"))
    for target in document.attributes("href"):
        if target.startswith("#"):
            assert target[1:] in ids, target


def test_every_picture_says_what_it_shows_and_holds_numbers_only(html: str) -> None:
    document = Document(html)
    pictures = [values for tag, values in document.elements if tag == "svg" and values.get("role") == "img"]
    assert all(len(values["aria-label"]) > 10 for values in pictures)
    drawn = {"x", "y", "x1", "x2", "y1", "y2", "cx", "cy", "r", "width", "height"}
    for tag, values in document.elements:
        if tag in {"rect", "line", "circle", "text"}:
            for name in drawn & values.keys():
                assert re.fullmatch(r"-?\d+(\.\d+)?", values[name]), (tag, name, values[name])


def test_nothing_unseen_is_left_in_the_text(html: str) -> None:
    html.encode()
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", html)


def test_headings_step_down_one_at_a_time(html: str) -> None:
    levels = [int(tag[1]) for tag, _ in Document(html).elements if re.fullmatch("h[1-6]", tag)]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(below - above <= 1 for above, below in pairwise(levels))


@pytest.mark.parametrize("make", [made_up.failing, made_up.sound, made_up.untimed])
def test_every_verdict_stands_there_with_its_reason_and_figures(make: object) -> None:
    results = make()  # type: ignore[operator]
    document = Document(page(results))
    for verdict in results.verdicts:
        assert verdict.reason in document.text
    assert "divergence 3,968 tokens" in document.text or results.sweep_words == "restores to any token"
    counted = {o: sum(v.outcome is o for v in results.verdicts) for o in Outcome}
    badges = [
        values["class"] for _, values in document.elements if values.get("class", "").startswith("badge ")
    ]
    for outcome, number in counted.items():
        assert badges.count(f"badge {outcome.lower()}") >= number


def test_the_four_pictures_are_there() -> None:
    labels = " ".join(Document(PAGES["failing"]).attributes("aria-label"))
    assert "Time to the first token: 8k cold 11.9 s" in labels
    assert "Tier 8k: tokens reused and read in 11 exchanges" in labels
    assert "Tier 32k" in labels
    assert "Gap sweep over 19 edits: largest gap 1,023 tokens" in labels
    assert "Timeline of 38 exchanges" in labels
    assert "a warm prompt answers 142 times sooner" in Document(PAGES["failing"]).text


def test_a_tier_that_was_left_out_says_why() -> None:
    assert "128k was left out: 131,072 tokens do not fit" in Document(PAGES["failing"]).text


def test_a_stopped_run_says_so_and_names_what_was_not_reached() -> None:
    text = Document(PAGES["stopped"]).text
    assert "Stopped before its end." in text
    assert text.count("not reached") == 7 + 1
    assert "Nothing failed so far" in text


def test_without_times_or_counts_the_page_says_what_is_missing() -> None:
    text = Document(PAGES["untimed"]).text
    assert "No time to the first token was measured." in text
    assert "nothing could be measured before the first gate" in text
    assert "does not say what it restored" in text


def test_a_run_without_anything() -> None:
    text = Document(PAGES["empty"]).text
    for sentence in ("Nothing was judged", "No gate was run", "No tier was run", "Nothing was sent"):
        assert sentence in text


def test_text_of_a_server_is_text() -> None:
    document = Document(PAGES["hostile"])
    assert (
        "<script>alert(1)</script>\\x1b[31m\\u202egnp.exe\\n</svg>]]>&amp;\\x00\\ud800{{7*7}}"
        in document.text
    )
    assert "日本語 🧑\u200d🚀 é" in document.text


def test_a_note_keeps_its_lines() -> None:
    note = "cold: Traceback:\n  File x\nKeyError: <b>"
    html = page(replace(made_up.failing(), notes=(note,)))
    assert '<bdi class="row">  File x</bdi>' in html
    assert '<bdi class="row">KeyError: &lt;b&gt;</bdi>' in html


def test_an_unknown_wait_is_no_zero() -> None:
    results = made_up.failing()
    tier = replace(results.tiers[0], warm_s=(0.0,), cold_s=())
    text = Document(page(replace(results, tiers=(tier,)))).text
    assert "cold no sample" in text
    assert "warm 0 ms (1 sample)" in text


def test_thousands_of_exchanges_make_a_page_of_a_size_to_open() -> None:
    results = made_up.failing()
    many = tuple(replace(case, id=f"{n:05d}") for n in range(60) for case in results.cases)
    many = tuple(replace(case, id=f"{at:05d}") for at, case in enumerate(many))
    large = Results(**{**vars(results), "cases": many, "verdicts": ()})
    html = page(large)
    assert len(html) < 4 << 20
    assert "more are in results.json" in html


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_can_be_read_on_its_ground(scheme: str) -> None:
    colour = schemes(CSS)[scheme]
    pairs = [("ink", "paper"), ("muted", "paper"), ("link", "paper"), ("ink", "wash"), ("muted", "wash")]
    pairs += [(o.lower(), f"{o.lower()}-wash") for o in Outcome] + [("paper", "fail"), ("fail", "paper")]
    pairs += [("muted", f"{o.lower()}-wash") for o in (Outcome.PASS, Outcome.FAIL, Outcome.INCONCLUSIVE)]
    for text, ground in pairs:
        assert contrast(colour[text], colour[ground]) >= 4.5, (text, ground)
    for shape in ("reused", "cold", "warm", "off", "unknown", "fail"):
        assert contrast(colour[shape], colour["paper"]) >= 3, shape


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("eyes", EYES)
def test_colours_that_must_differ_do_so_for_every_eye(scheme: str, eyes: str) -> None:
    colour = schemes(CSS)[scheme]
    for one, other in [
        ("pass", "fail"),
        ("reused", "read"),
        ("cold", "warm"),
        ("cold", "off"),
        ("fail", "warm"),
    ]:
        assert apart(colour[one], colour[other], eyes) > 20, (one, other)


def test_it_has_a_dark_dress_and_one_for_paper() -> None:
    assert "@media screen and (prefers-color-scheme: dark)" in CSS
    assert "@media print" in CSS
    assert "print-color-adjust: exact" in CSS
