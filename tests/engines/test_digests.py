"""The memo of weights' digests: used where a file is the same, never where it is not."""

from __future__ import annotations

import json
import os
import stat
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from headstart.engines import digests
from headstart.engines.digests import remembered


class Counted:
    """Takes digests, a new one each time, and counts how often."""

    def __init__(self) -> None:
        self.taken = 0

    def __call__(self) -> str:
        self.taken += 1
        return f"{self.taken:064x}"


@pytest.fixture
def weights(tmp_path: Path) -> Path:
    path = tmp_path / "model.gguf"
    path.write_bytes(b"GGUF weights")
    return path


def test_an_unchanged_file_is_read_once(tmp_path: Path, weights: Path) -> None:
    memo, take = tmp_path / "base" / "digests.json", Counted()
    assert remembered(memo, [weights], take) == remembered(memo, [weights], take)
    assert take.taken == 1
    assert stat.S_IMODE(memo.stat().st_mode) == 0o600
    assert stat.S_IMODE(memo.parent.stat().st_mode) == 0o700
    assert [path.name for path in memo.parent.iterdir()] == ["digests.json"]
    assert remembered(None, [weights], take) == f"{2:064x}"


def rewritten(path: Path) -> None:
    """Other content of the same size with the old time, as some copying programs leave it."""
    before = path.stat()
    path.write_bytes(b"GGUF wEights")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def replaced(path: Path) -> None:
    before = path.stat()
    other = path.with_name("other")
    other.write_bytes(b"GGUF wEights")
    os.utime(other, ns=(before.st_atime_ns, before.st_mtime_ns))
    other.replace(path)


@pytest.mark.parametrize("change", [rewritten, replaced, lambda path: path.write_bytes(b"GGUF more weights")])
def test_a_changed_file_is_read_again(
    tmp_path: Path, weights: Path, change: Callable[[Path], object]
) -> None:
    memo, take = tmp_path / "digests.json", Counted()
    first = remembered(memo, [weights], take)
    time.sleep(0.02)  # a step of the file system's clock
    change(weights)
    assert remembered(memo, [weights], take) != first
    assert take.taken == 2


def test_a_file_that_changes_while_it_is_read_is_not_remembered(tmp_path: Path, weights: Path) -> None:
    memo = tmp_path / "digests.json"

    def take() -> str:
        weights.write_bytes(b"GGUF later weights")
        return "0" * 64

    remembered(memo, [weights], take)
    assert not memo.exists()


def test_parts_are_remembered_together(tmp_path: Path, weights: Path) -> None:
    other = tmp_path / "other.gguf"
    other.write_bytes(b"GGUF")
    memo, take = tmp_path / "digests.json", Counted()
    remembered(memo, [weights], take)
    remembered(memo, [weights, other], take)
    remembered(memo, [other, weights], take)
    assert take.taken == 3
    remembered(memo, [weights, other], take)
    assert take.taken == 3


@pytest.mark.parametrize(
    "content",
    [
        "",
        "{",
        "[]",
        '{"version": 99, "digests": {}}',
        '{"version": 1, "digests": []}',
        '{"version": 1}',
        "\0\1",
    ],
)
def test_a_damaged_memo_is_made_anew(tmp_path: Path, weights: Path, content: str) -> None:
    memo, take = tmp_path / "digests.json", Counted()
    memo.write_text(content)
    first = remembered(memo, [weights], take)
    assert remembered(memo, [weights], take) == first
    assert take.taken == 1


def test_a_digest_that_is_none_is_not_believed(tmp_path: Path, weights: Path) -> None:
    memo, take = tmp_path / "digests.json", Counted()
    remembered(memo, [weights], take)
    content = json.loads(memo.read_text())
    content["digests"] = dict.fromkeys(content["digests"], "x" * 64)
    memo.write_text(json.dumps(content))
    assert remembered(memo, [weights], take) == f"{2:064x}"


def test_a_memo_that_cannot_be_written_is_no_obstacle(tmp_path: Path, weights: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    assert remembered(tmp_path / "file" / "digests.json", [weights], Counted()) == f"{1:064x}"


def test_the_memo_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(digests, "MOST", 2)
    memo, take = tmp_path / "digests.json", Counted()
    for name in "abc":
        (tmp_path / name).write_text(name)
        remembered(memo, [tmp_path / name], take)
    remembered(memo, [tmp_path / "c"], take)
    remembered(memo, [tmp_path / "b"], take)
    assert take.taken == 3
    remembered(memo, [tmp_path / "a"], take)
    assert take.taken == 4
