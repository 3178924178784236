"""verify reads every file and names what is wrong, and where."""

from __future__ import annotations

from pathlib import Path

import pytest

from headstart.errors import ConfigError
from headstart.prefix.report import Reason
from headstart.prefix.verify import verify
from tests.prefix.disk import Disk, entry_files, listing
from tests.prefix.fake import counting
from tests.prefix.test_blockfile import other_version


def test_a_good_store_has_no_problems_and_stays_as_it_is(tmp_path: Path) -> None:
    told: list[tuple[int, int]] = []
    with Disk(tmp_path) as disk:
        disk.put(counting(0, 10), logits=True)
        disk.flush()
        before = listing(tmp_path)
        report = verify(tmp_path, lambda *news: told.append(news))
        assert listing(tmp_path) == before
    files = entry_files(tmp_path)
    assert (report.files, report.problems) == (4, ())
    assert report.bytes == sum(path.stat().st_size for path in files)
    assert told == [(0, 4), (1, 4), (2, 4), (3, 4), (4, 4)]


def test_every_problem_is_named_with_file_reason_and_tensor(tmp_path: Path) -> None:
    with Disk(tmp_path) as disk:
        disk.put(counting(0, 20))
    flipped, cut, version, link, good = entry_files(tmp_path)
    data = bytearray(flipped.read_bytes())
    data[-1] ^= 16
    flipped.write_bytes(data)
    cut.write_bytes(cut.read_bytes()[:50])
    version.write_bytes(other_version(version.read_bytes()))
    link.unlink()
    link.symlink_to(good)
    report = verify(tmp_path)
    assert report.files == 5
    found = {problem.path: (problem.reason, problem.tensor) for problem in report.problems}
    assert found == {
        flipped: (Reason.CORRUPT, "plane.v"),
        cut: (Reason.CORRUPT, None),
        version: (Reason.UNREADABLE_VERSION, None),
        link: (Reason.CORRUPT, None),
    }
    assert all(str(problem.path) in problem.detail for problem in report.problems)


def test_without_a_store(tmp_path: Path) -> None:
    assert verify(tmp_path).files == 0
    with pytest.raises(ConfigError):
        verify(tmp_path / "none")
