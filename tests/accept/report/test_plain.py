from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headstart.accept.report.plain import clipped, columns, padded, plain, sentence, wrapped

ANY = st.text(st.characters(codec=None), max_size=60)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a\x1b[31mb", "a\\x1b[31mb"),
        ("a\nb\r\tc", "a\\nb\\r c"),
        ("x\u202egnp.exe", "x\\u202egnp.exe"),
        ("\x9b31m", "\\x9b31m"),
        ("half \ud800", "half \\ud800"),
        ("line\u2028end", "line\\u2028end"),
        ("日本 é 🧑\u200d🚀", "日本 é 🧑\u200d🚀"),
    ],
)
def test_what_acts_on_a_terminal_is_made_visible(text: str, shown: str) -> None:
    assert plain(text) == shown


@given(ANY)
def test_plain_text_is_one_harmless_line(text: str) -> None:
    shown = plain(text)
    shown.encode()
    assert all(unicodedata.category(char)[0] != "C" or char in "\u200c\u200d" for char in shown)
    assert plain(shown) == shown


def test_columns_are_those_of_a_terminal() -> None:
    assert columns("abc") == 3
    assert columns("日本") == 4
    assert columns("e\u0301") == 1
    assert padded("日", 4) == "日  "


@given(ANY.map(plain), st.integers(2, 30))
def test_no_line_is_wider_than_asked_and_nothing_is_lost(text: str, width: int) -> None:
    lines = wrapped(text, width)
    assert all(columns(line) <= width for line in lines)
    assert "".join(lines).replace(" ", "") == text.replace(" ", "")


@given(ANY.map(plain), st.integers(1, 30))
def test_clipped_text_fits_and_says_that_it_was_clipped(text: str, most: int) -> None:
    short = clipped(text, most)
    assert columns(short) <= most
    assert short == text if columns(text) <= most else short.endswith("…")


def test_sentences() -> None:
    assert [sentence(text) for text in ("", "an answer", "What?", "Done.", "é")] == [
        "",
        "An answer.",
        "What?",
        "Done.",
        "É.",
    ]
