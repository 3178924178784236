"""What the tier's files ask of the system: flushed before they are named, and whole however little a call
does at once."""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from headstart.prefix.blockfile import EntryKind
from headstart.prefix.faults import FileFaults, Step
from headstart.prefix.ssd import SsdFiles
from tests.prefix.disk import block_head, entry_files
from tests.prefix.fake import counting, run

HEAD = block_head(run(1, 2, 3))
ROWS = {f"plane.{n}": np.full((3, 700), n, np.uint8) for n in range(5)}


def test_a_file_is_flushed_whole_before_it_has_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flushed: list[tuple[int, int]] = []
    flush = os.fdatasync

    def look(file: int) -> None:
        flushed.append((os.fstat(file).st_ino, os.fstat(file).st_size))
        assert entry_files(tmp_path) == []
        flush(file)

    monkeypatch.setattr(os, "fdatasync", look)
    size = SsdFiles(tmp_path).write(HEAD, ROWS)
    (path,) = entry_files(tmp_path)
    assert flushed == [(path.stat().st_ino, size)] and size == path.stat().st_size


def test_a_file_that_cannot_be_flushed_is_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "fdatasync", refuse)
    with pytest.raises(OSError, match="Errno"):
        SsdFiles(tmp_path).write(HEAD, ROWS)
    assert list(tmp_path.glob("*/*/*")) == []


def test_a_file_has_its_name_only_once_it_is_whole(tmp_path: Path) -> None:
    seen: dict[Step, int] = {}

    class Look(FileFaults):
        def at(self, step: Step, path: Path) -> None:
            seen[step] = len(entry_files(tmp_path))

    SsdFiles(tmp_path, faults=Look()).write(HEAD, ROWS)
    assert seen == {Step.OPEN: 0, Step.WRITTEN: 0, Step.FLUSHED: 0, Step.RENAMED: 1}


@pytest.mark.parametrize("most", [1, 100, 700, 2101])
def test_calls_that_do_less_than_they_were_asked_to(
    most: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A call may write or read a part only, as it does on large files, pipes and some file systems."""
    write, read = os.write, os.readv
    monkeypatch.setattr(os, "writev", lambda file, parts: write(file, b"".join(parts)[:most]))

    def read_some(file: int, parts: Sequence[memoryview]) -> int:
        return read(file, [parts[0][: max(most, 50)]])

    monkeypatch.setattr(os, "readv", read_some)
    files = SsdFiles(tmp_path)
    size = files.write(HEAD, ROWS)
    (found,) = files.found()
    assert found.nbytes == size
    _, tensors = files.read(HEAD.namespace, HEAD.key, EntryKind.BLOCK)
    assert all((tensors[name] == array).all() for name, array in ROWS.items())
    assert files.head_of(found) == (HEAD, size)


def test_the_head_of_the_largest_block_there_may_be(tmp_path: Path) -> None:
    """Its tokens are longer than what is read of other files."""
    head = block_head(counting(0, 65536))
    files = SsdFiles(tmp_path)
    size = files.write(head, {"plane.k": np.zeros((65536, 8), np.uint8)})
    (found,) = files.found()
    assert files.head_of(found) == (head, size)


def test_free_space_is_what_this_user_may_take(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = SsdFiles(tmp_path)
    usage = SimpleNamespace(f_bavail=3, f_bfree=100, f_frsize=4096, f_bsize=65536)
    monkeypatch.setattr(os, "statvfs", lambda _: usage)
    assert files.free_bytes() == 3 * 4096
