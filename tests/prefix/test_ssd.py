"""The tier's files: whole or not there, for their owner alone, and what is wrong with one is told."""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import psutil
import pytest

from headstart.errors import ConfigError
from headstart.prefix.blockfile import EntryKind, Head
from headstart.prefix.faults import FileFaults, Step
from headstart.prefix.listing import TEMPORARY
from headstart.prefix.report import Reason
from headstart.prefix.ssd import LOCK, SsdFiles, StoreFileError, disk_bytes
from tests.prefix.disk import assert_clean, block_head, entry_files, listing
from tests.prefix.fake import run
from tests.prefix.test_blockfile import other_version

HEAD = block_head(run(1, 2, 3))
ROWS = {"plane.k": np.arange(24, dtype=np.uint8).reshape(3, 8)}
WRITING = (Step.OPEN, Step.WRITTEN, Step.FLUSHED)


def read(files: SsdFiles, head: Head = HEAD) -> np.ndarray:  # type: ignore[type-arg]
    found, tensors = files.read(head.namespace, head.key, EntryKind.BLOCK)
    assert found == head
    return tensors["plane.k"]


def reason_of(files: SsdFiles, head: Head = HEAD) -> Reason:
    with pytest.raises(StoreFileError) as caught:
        read(files, head)
    return caught.value.reason


def test_what_is_written_is_found_and_read(tmp_path: Path) -> None:
    files = SsdFiles(tmp_path / "store")
    size = files.write(HEAD, ROWS)
    (found,) = files.found()
    assert (found.namespace, found.key, found.nbytes) == (HEAD.namespace, HEAD.key, size)
    assert files.head_of(found) == (HEAD, size)
    assert files.check(found) == size == found.path.stat().st_size
    assert found.modified_s == found.path.stat().st_mtime
    assert (read(files) == ROWS["plane.k"]).all()
    files.remove(HEAD.namespace, HEAD.key)
    assert list(files.found()) == []
    files.remove(HEAD.namespace, HEAD.key)


def test_many_and_large_tensors_are_written_whole(tmp_path: Path) -> None:
    """More buffers than one call of the system takes, and one larger than most; the header is long."""
    rows = {f"plane.{n}": np.full((3, 5), n % 251, np.uint8) for n in range(1100)}
    rows["plane.k"] = np.random.default_rng(0).integers(0, 255, (3, 3 << 20)).astype(np.uint8)
    files = SsdFiles(tmp_path)
    size = files.write(HEAD, rows)
    _, tensors = files.read(HEAD.namespace, HEAD.key, EntryKind.BLOCK)
    assert all((tensors[name] == array).all() for name, array in rows.items())
    (found,) = files.found()
    assert files.head_of(found) == (HEAD, size)


def test_nobody_else_can_read_it(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        files = SsdFiles(tmp_path / "store")
        files.write(HEAD, ROWS)
    finally:
        os.umask(before)
    modes = {path: stat.S_IMODE(mode) for path, (_, mode, _) in listing(tmp_path / "store").items()}
    assert modes and all(mode == (0o700 if Path(path).is_dir() else 0o600) for path, mode in modes.items()), (
        modes
    )
    assert stat.S_IMODE((tmp_path / "store").stat().st_mode) == 0o700


def test_a_directory_that_was_open_to_others_is_closed_to_them(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    SsdFiles(tmp_path).close()
    assert stat.S_IMODE(tmp_path.stat().st_mode) == 0o700


def test_a_second_owner_is_told_who_has_it(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from headstart.prefix.ssd import SsdFiles\n"
        "files = SsdFiles(Path(sys.argv[1])); print('held', flush=True); sys.stdin.read()"
    )
    child = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert child.stdout is not None and child.stdout.readline() == "held\n"
    before = psutil.Process().num_fds()
    with pytest.raises(ConfigError, match=f"in use by process {child.pid}"):
        SsdFiles(tmp_path)
    assert psutil.Process().num_fds() == before
    SsdFiles(tmp_path, read_only=True)
    child.kill()
    child.wait()
    assert (tmp_path / LOCK).read_text() == f"{child.pid}\n", "the dead owner's lock file is still there"
    (tmp_path / LOCK).write_text("of a number that is longer\n")
    files = SsdFiles(tmp_path)
    assert (tmp_path / LOCK).read_text() == f"{os.getpid()}\n"
    files.close()
    files.close()
    SsdFiles(tmp_path).close()


def test_a_place_that_cannot_be_used_says_why(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="cannot be used"):
        SsdFiles(tmp_path / "file")
    with pytest.raises(ConfigError, match="does not exist"):
        SsdFiles(tmp_path / "none", read_only=True)
    with pytest.raises(ConfigError, match="does not exist"):
        SsdFiles(tmp_path / "file", read_only=True)
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize("step", WRITING)
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO])
def test_a_write_that_fails_leaves_nothing(step: Step, number: int, tmp_path: Path) -> None:
    faults = FileFaults()
    files = SsdFiles(tmp_path, faults=faults)
    faults.fail(step, number)
    with pytest.raises(OSError, match="Errno") as caught:
        files.write(HEAD, ROWS)
    assert caught.value.errno == number
    assert list(tmp_path.glob("*/*/*")) == []
    faults.heal()
    files.write(HEAD, ROWS)
    assert_clean(tmp_path)


def test_what_a_dead_process_of_the_same_id_left_is_no_obstacle(tmp_path: Path) -> None:
    files = SsdFiles(tmp_path)
    path = files.path(HEAD.namespace, HEAD.key)
    path.parent.mkdir(parents=True)
    path.with_name(f"{TEMPORARY}{os.getpid()}-{path.name}").write_bytes(b"half a fi")
    files.write(HEAD, ROWS)
    assert_clean(tmp_path)


def test_a_link_in_the_place_of_a_temporary_file_is_not_written_through(tmp_path: Path) -> None:
    files = SsdFiles(tmp_path / "store")
    (tmp_path / "mine").write_text("kept")
    path = files.path(HEAD.namespace, HEAD.key)
    path.parent.mkdir(parents=True)
    path.with_name(f"{TEMPORARY}{os.getpid()}-{path.name}").symlink_to(tmp_path / "mine")
    files.write(HEAD, ROWS)
    assert (tmp_path / "mine").read_text() == "kept"
    read(files)


def test_the_directory_may_vanish(tmp_path: Path) -> None:
    files = SsdFiles(tmp_path)
    files.write(HEAD, ROWS)
    for path in sorted(tmp_path.glob("**/*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    assert reason_of(files) is Reason.IO_ERROR
    files.write(HEAD, ROWS)
    read(files)


def as_link(path: Path) -> None:
    path.rename(path.with_suffix(".other"))
    path.symlink_to(path.with_suffix(".other"))


def as_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def as_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def as_socket(path: Path) -> None:
    """Bound by its name alone: the whole path is longer than those of sockets may be."""
    path.unlink()
    with contextlib.chdir(path.parent), socket.socket(socket.AF_UNIX) as bound:
        bound.bind(path.name)


def rewritten(change: Callable[[bytes], bytes]) -> Callable[[Path], None]:
    return lambda path: path.write_bytes(change(path.read_bytes())) and None  # type: ignore[return-value]


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (as_link, Reason.CORRUPT),
        (as_folder, Reason.CORRUPT),
        (as_pipe, Reason.CORRUPT),
        (as_socket, Reason.CORRUPT),
        (Path.unlink, Reason.IO_ERROR),
        (rewritten(lambda data: b""), Reason.CORRUPT),
        (rewritten(lambda data: data[: len(data) // 10]), Reason.CORRUPT),
        (rewritten(lambda data: data[: len(data) // 2]), Reason.CORRUPT),
        (rewritten(lambda data: data[: len(data) * 9 // 10]), Reason.CORRUPT),
        (rewritten(lambda data: data + b"x"), Reason.CORRUPT),
        (rewritten(other_version), Reason.UNREADABLE_VERSION),
    ],
)
def test_what_is_wrong_with_a_file_is_told(
    damage: Callable[[Path], None], reason: Reason, tmp_path: Path
) -> None:
    files = SsdFiles(tmp_path)
    files.write(HEAD, ROWS)
    path = files.path(HEAD.namespace, HEAD.key)
    (found,) = files.found()
    damage(path)
    assert reason_of(files) is reason
    for look in (files.head_of, files.check):
        with pytest.raises((StoreFileError, FileNotFoundError)) as caught:
            look(found)
        told = caught.value.reason if isinstance(caught.value, StoreFileError) else Reason.IO_ERROR
        assert told is reason and path.name in str(caught.value)
    assert all((found.nbytes >= 0) == (path.is_file() and not path.is_symlink()) for found in files.found())
    files.remove(HEAD.namespace, HEAD.key)
    assert not os.path.lexists(path) and not list(path.parent.glob(".aside-*"))
    files.write(HEAD, ROWS)
    read(files)


def test_a_link_to_a_folder_goes_and_the_folder_stays(tmp_path: Path) -> None:
    files = SsdFiles(tmp_path / "store")
    (tmp_path / "mine").mkdir()
    path = files.path(HEAD.namespace, HEAD.key)
    path.parent.mkdir(parents=True)
    path.symlink_to(tmp_path / "mine")
    files.remove(HEAD.namespace, HEAD.key)
    assert list(path.parent.iterdir()) == [] and (tmp_path / "mine").is_dir()


def test_a_folder_with_things_in_it_is_moved_aside(tmp_path: Path) -> None:
    files = SsdFiles(tmp_path)
    path = files.path(HEAD.namespace, HEAD.key)
    path.mkdir(parents=True)
    (path / "mine").write_text("kept")
    files.remove(HEAD.namespace, HEAD.key)
    files.write(HEAD, ROWS)
    (aside,) = path.parent.glob(".aside-*")
    assert (aside / "mine").read_text() == "kept"


def test_files_that_change_places_are_found_out(tmp_path: Path) -> None:
    """Each is whole and of the right form; each says it is another."""
    other = block_head(run(1, 2, 4))
    elsewhere = Head(EntryKind.BLOCK, b"other", HEAD.parent, HEAD.tokens, 1)
    assert elsewhere.key == HEAD.key
    files = SsdFiles(tmp_path)
    for head in (HEAD, other, elsewhere):
        files.write(head, ROWS)
    paths = [files.path(head.namespace, head.key) for head in (HEAD, other, elsewhere)]
    data = [path.read_bytes() for path in paths]
    for path, content in zip(paths, [data[1], data[2], data[0]], strict=True):
        path.write_bytes(content)
    for head in (HEAD, other, elsewhere):
        assert reason_of(files, head) is Reason.CORRUPT
    for found in files.found():
        with pytest.raises(StoreFileError, match="another entry"):
            files.check(found)
        with pytest.raises(StoreFileError, match="another entry"):
            files.head_of(found)


def test_an_entry_of_another_kind_than_was_asked_for(tmp_path: Path) -> None:
    files = SsdFiles(tmp_path)
    files.write(HEAD, ROWS)
    with pytest.raises(StoreFileError, match="another entry") as caught:
        files.read(HEAD.namespace, HEAD.key, EntryKind.LOGITS)
    assert caught.value.reason is Reason.CORRUPT


def test_the_tensor_at_fault_is_named_and_nothing_stays_open(tmp_path: Path) -> None:
    files = SsdFiles(tmp_path)
    files.write(HEAD, ROWS)
    (found,) = files.found()
    found.path.write_bytes(found.path.read_bytes()[:-1] + b"x")
    before = psutil.Process().num_fds()
    for look in (lambda: read(files), lambda: files.check(found)):
        with pytest.raises(StoreFileError, match="tensor plane") as caught:
            look()
        assert (caught.value.reason, caught.value.tensor) == (Reason.CORRUPT, "plane.k")
    assert files.head_of(found) == (HEAD, found.nbytes)
    assert psutil.Process().num_fds() == before


def test_reads_that_go_wrong(tmp_path: Path) -> None:
    faults = FileFaults()
    files = SsdFiles(tmp_path, faults=faults)
    files.write(HEAD, ROWS)
    faults.fail(Step.READ, errno.EIO)
    assert reason_of(files) is Reason.IO_ERROR
    faults.heal()
    faults.short_read(lambda size: size - 1)
    assert reason_of(files) is Reason.CORRUPT
    faults.heal()
    faults.flip_bit(lambda size: size - 1, 7)
    assert reason_of(files) is Reason.CORRUPT
    faults.heal()
    read(files)


def test_names_of_other_things_are_not_looked_at(tmp_path: Path) -> None:
    files = SsdFiles(tmp_path)
    files.write(HEAD, ROWS)
    path = files.path(HEAD.namespace, HEAD.key)
    for name in (
        path.with_name(path.name.upper().replace(".SAFETENSORS", ".safetensors")),
        path.with_name("note.txt"),
        path.with_name("xyz.safetensors"),
        tmp_path / "README",
        tmp_path / "zz" / "00" / path.name,
        path.parent.with_name("00" if path.parent.name != "00" else "01") / path.name,
    ):
        name.parent.mkdir(parents=True, exist_ok=True)
        name.write_text("")
    assert [found.path for found in files.found()] == [path]
    temporary = path.with_name(TEMPORARY + "1-x")
    temporary.write_text("")
    assert files.scan().temporary == [temporary]


def test_links_to_folders_are_not_looked_into(tmp_path: Path) -> None:
    other = SsdFiles(tmp_path / "other")
    other.write(HEAD, ROWS)
    files = SsdFiles(tmp_path / "store")
    (tmp_path / "store" / HEAD.namespace.hex()).symlink_to(tmp_path / "other" / HEAD.namespace.hex())
    assert list(files.found()) == []


def test_space_on_disk_is_counted_in_whole_units() -> None:
    assert disk_bytes(1, 0) == disk_bytes(4096, 0)
    assert disk_bytes(4097, 0) == disk_bytes(4096, 0) + 4096
    assert disk_bytes(1, 0) >= 4096 + 500, "the row in the catalog"
    assert disk_bytes(1, 1024) > disk_bytes(1, 0) + 1024
    assert entry_files(Path("/nonexistent")) == []
