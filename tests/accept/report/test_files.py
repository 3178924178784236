from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest

from headstart.accept.report.files import JUNIT, PAGE, RESULTS, as_json, read, reports
from headstart.accept.report.results import Results
from headstart.errors import ConfigError
from tests.accept.report import made_up


def stored(results: Results, folder: Path) -> Path:
    for name, text in reports(results).items():
        (folder / name).write_text(text, encoding="utf-8")
    return folder


@pytest.mark.parametrize("name", made_up.ALL)
def test_a_directory_and_its_file_are_read_back(name: str, tmp_path: Path) -> None:
    results = made_up.ALL[name]()
    folder = stored(results, tmp_path)
    assert read(folder) == read(folder / RESULTS) == results
    assert {path.name for path in folder.iterdir()} == {RESULTS, JUNIT, PAGE}


def test_what_json_has_no_number_for_becomes_null(tmp_path: Path) -> None:
    results = made_up.failing()
    odd = replace(results.verdicts[0], figures={"a_s": math.nan, "b": math.inf, "c": 1})
    stored(replace(results, verdicts=(odd,)), tmp_path)
    assert read(tmp_path).verdicts[0].figures == {"a_s": None, "b": None, "c": 1}


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "is damaged: not JSON at line 1, column 1"),
        (as_json(made_up.failing()).encode()[:5000], "is damaged: not JSON at line"),
        (b"\xff\xfe{", "is damaged: not UTF-8 at byte 0"),
        (b'{"format": NaN}', "is damaged: NaN is no number"),
        (b"[" * 200_000, "is damaged"),
        (b"[1, 2]", "does not hold results of headstart accept"),
        (b'{"hello": 1}', "does not hold results of headstart accept"),
        (b'{"format": 7}', "cannot be used: format is 7; this version reads format 1"),
        (b'{"format": 1}', "cannot be used: results: tool_version is missing"),
    ],
)
def test_what_cannot_be_read_is_said_with_the_file(content: bytes, said: str, tmp_path: Path) -> None:
    file = tmp_path / RESULTS
    file.write_bytes(content)
    with pytest.raises(ConfigError) as caught:
        read(tmp_path)
    assert said in str(caught.value)
    assert str(file) in str(caught.value)


def test_a_directory_without_results(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"no results here: .*results\.json does not exist"):
        read(tmp_path)
    with pytest.raises(ConfigError, match="no results here"):
        read(tmp_path / "nowhere")


def test_half_a_surrogate_pair_is_kept_as_an_escape() -> None:
    results = replace(made_up.failing(), notes=("half \ud800",))
    text = as_json(results)
    text.encode()
    assert json.loads(text)["notes"] == ["half \ud800"]
