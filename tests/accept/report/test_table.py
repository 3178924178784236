from __future__ import annotations

import io
import re

import pytest

from headstart.accept.report.plain import columns
from headstart.accept.report.table import Style, line, style_for, table
from headstart.accept.verdict import Outcome
from tests.accept.report import made_up

ESCAPE = re.compile(r"\x1b\[[\d;]*m")


class Tty(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("name", made_up.ALL)
@pytest.mark.parametrize("width", [20, 60, 79, 100, 240])
@pytest.mark.parametrize("colour", [False, True])
def test_no_line_of_the_verdicts_is_wider_than_the_terminal(name: str, width: int, colour: bool) -> None:
    results = made_up.ALL[name]()
    text = table(results, Style(width, colour))
    assert text.endswith("\n")
    verdicts = ESCAPE.sub("", text).split("\n\n")[0].splitlines()
    if width >= 60:
        assert max((columns(row) for row in verdicts), default=0) <= width


def test_columns_are_aligned_and_a_gate_is_named_once() -> None:
    rows = table(made_up.failing(), Style(120)).splitlines()
    start = rows[0].index("reason")
    assert all(row[start - 2 : start] == "  " for row in rows[1:15])
    assert sum("exact repeat" in row for row in rows) == 1
    assert any(row.startswith("INCONCLUSIVE  honesty") for row in rows)


def test_the_last_lines_say_how_it_went() -> None:
    assert table(made_up.failing()).splitlines()[-2:] == [
        "4 checks failed: 9 passed, 4 failed, 1 inconclusive, 1 unsupported",
        "llama_server b6812, gemma-3-270m, 38 exchanges in 8 min 27 s",
    ]
    assert "Nothing failed: 10 passed" in table(made_up.sound())
    stopped = table(made_up.stopped()).splitlines()
    assert stopped[-3] == "Nothing failed so far: 7 passed"
    assert stopped[-1].startswith("Stopped before its end; not reached: append, middle edit, gap sweep,")
    assert table(made_up.empty()).startswith("Nothing was judged\n")


def test_colour_goes_around_words_and_changes_none() -> None:
    bare, coloured = (table(made_up.failing(), Style(100, colour)) for colour in (False, True))
    assert "\x1b" not in bare
    assert "\x1b[1;31mFAIL" in coloured
    assert ESCAPE.sub("", coloured) == bare


def test_nothing_of_a_server_reaches_the_terminal_raw() -> None:
    text = table(made_up.hostile(), Style(100, colour=False))
    assert "\x1b" not in text
    assert "\u202e" not in text
    text.encode()


def test_a_very_long_reason_is_clipped() -> None:
    text = line(made_up.verdict("cold", Outcome.FAIL, "word " * 5000), Style(80))
    assert text.count("\n") < 20
    assert text.endswith("…")


def test_verdicts_that_come_one_by_one_are_aligned() -> None:
    first = line(made_up.verdict("cold", Outcome.PASS, "0 of 7,936 tokens reused", "8k"), Style(100))
    second = line(
        made_up.verdict("exact_repeat", Outcome.INCONCLUSIVE, "it does not say", "128k", "streamed")
    )
    assert first == "PASS          cold             8k                    0 of 7,936 tokens reused"
    assert second.index("it does") == first.index("0 of")
    assert line(made_up.verdict("cold", Outcome.FAIL, "why"), Style(40)) == "FAIL cold\n    why"


@pytest.mark.parametrize(
    ("stream", "environment", "style"),
    [
        (Tty(), {"COLUMNS": "72"}, Style(72, colour=True)),
        (Tty(), {"COLUMNS": "72", "NO_COLOR": "1"}, Style(72, colour=False)),
        (Tty(), {"COLUMNS": "72", "NO_COLOR": ""}, Style(72, colour=True)),
        (Tty(), {"COLUMNS": "72", "TERM": "dumb"}, Style(72, colour=False)),
        (io.StringIO(), {}, Style(100, colour=False)),
        (io.StringIO(), {"COLUMNS": "5"}, Style(20, colour=False)),
        (io.StringIO(), {"COLUMNS": "wide"}, Style(100, colour=False)),
    ],
)
def test_the_stream_and_the_environment_decide(
    stream: io.StringIO, environment: dict[str, str], style: Style
) -> None:
    assert style_for(stream, environment) == style
