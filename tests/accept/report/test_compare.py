from __future__ import annotations

import io
import json
from pathlib import Path

import pytest

from headstart.accept.report.compare import run
from headstart.accept.report.files import reports
from headstart.accept.report.results import Results
from headstart.errors import ConfigError
from tests.accept.report import made_up


@pytest.fixture
def folders(tmp_path: Path) -> tuple[Path, Path]:
    return kept(made_up.failing(), tmp_path / "a"), kept(made_up.sound(), tmp_path / "b")


def kept(results: Results, folder: Path) -> Path:
    folder.mkdir()
    for name, text in reports(results).items():
        (folder / name).write_text(text, encoding="utf-8")
    return folder


def test_the_status_says_whether_the_second_run_is_worse(folders: tuple[Path, Path]) -> None:
    a, b = folders
    assert run(a, b / "results.json", out=io.StringIO()) == 0
    assert run(b, a, out=io.StringIO()) == 1
    assert run(a, a, out=io.StringIO()) == 0


def test_it_prints_text_or_json(folders: tuple[Path, Path]) -> None:
    text, data = io.StringIO(), io.StringIO()
    run(*folders, out=text)
    run(*folders, out=data, as_json=True)
    assert "1 check better in B" in text.getvalue()
    changes = [verdict["change"] for verdict in json.loads(data.getvalue())["verdicts"]]
    assert changes.count("better") == 1
    assert changes.count("only in A") == 3


def test_what_cannot_be_compared_needs_a_word(folders: tuple[Path, Path], tmp_path: Path) -> None:
    other = kept(made_up.empty(), tmp_path / "c")
    with pytest.raises(ConfigError, match="cannot be compared: context: 40,960 tokens in A, not known in B"):
        run(folders[0], other)
    out = io.StringIO()
    assert run(folders[0], other, anyway=True, out=out) == 0
    assert "not comparable: context" in out.getvalue()
