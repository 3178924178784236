"""The background writer: a bounded queue, answers in order, and files that are whole whenever it dies."""

from __future__ import annotations

import errno
import logging
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from headstart.prefix.blockfile import Head
from headstart.prefix.catalog import Catalog
from headstart.prefix.faults import CRASH_STATUS, FileFaults, Step
from headstart.prefix.ssd import CATALOG, SsdFiles
from headstart.prefix.verify import verify
from headstart.prefix.writer import Remove, Save, Writer
from tests.prefix.disk import Disk, assert_clean, block_head, entry_files
from tests.prefix.fake import MY, counting, run

SIZE = 1000


def save(number: int, nbytes: int = SIZE) -> Save:
    head = block_head(run(number))
    rows = np.full((1, nbytes), number % 251, np.uint8)
    return Save(number, f"source {number}", head, {"plane.k": rows}, nbytes, hits=0, used_s=1.0 + number)


class Made:
    def __init__(self, directory: Path, *, queue_bytes: int = 10**9, flush_interval_s: float = 60.0) -> None:
        self.directory = directory
        self.faults = FileFaults()
        self.files = SsdFiles(directory, faults=self.faults)
        self.catalog = Catalog(directory / CATALOG)
        self.writer = Writer(
            self.files, self.catalog, queue_bytes=queue_bytes, flush_interval_s=flush_interval_s
        )

    def end(self) -> list[bytes]:
        """Closes everything; the keys the catalog then lists."""
        self.writer.close()
        self.files.close()
        catalog = Catalog(self.directory / CATALOG)
        keys = [row.key for row in catalog.listed()]
        catalog.close()
        return keys


@pytest.fixture
def made(tmp_path: Path) -> Iterator[Made]:
    made = Made(tmp_path)
    yield made
    made.writer.close()
    made.files.close()


def heads(*numbers: int) -> set[bytes]:
    return {block_head(run(number)).key for number in numbers}


def test_answers_come_in_the_order_of_the_offers(made: Made) -> None:
    for number in range(50):
        assert made.writer.offer(save(number))
    assert made.writer.flush(timeout_s=10)
    answers = made.writer.answers()
    assert [answer.save.entry for answer in answers] == list(range(50))
    assert [answer.save.source for answer in answers] == [f"source {n}" for n in range(50)]
    sizes = [made.files.path(MY, answer.save.head.key).stat().st_size for answer in answers]
    assert [answer.file_bytes for answer in answers] == sizes
    assert made.writer.written_bytes == sum(sizes)
    assert made.writer.answers() == []


def test_flushing_does_not_wait_for_the_interval(made: Made) -> None:
    """Neither with work to do nor with nothing but a use to note."""
    made.writer.offer(save(1))
    started_s = time.monotonic()
    assert made.writer.flush(timeout_s=30)
    made.writer.note_use(block_head(run(1)).key, 5, 123.0)
    assert made.writer.flush(timeout_s=30)
    assert time.monotonic() - started_s < 5
    with_rows = Catalog(made.directory / CATALOG, read_only=True)
    assert [(row.hits, row.used_s) for row in with_rows.listed()] == [(5, 123.0)]
    with_rows.close()


def test_the_interval_commits_by_itself(tmp_path: Path) -> None:
    made = Made(tmp_path, flush_interval_s=0.05)
    made.writer.offer(save(1))
    deadline_s = time.monotonic() + 10
    while time.monotonic() < deadline_s:
        reader = Catalog(tmp_path / CATALOG, read_only=True)
        found = len(list(reader.listed()))
        reader.close()
        if found:
            break
        time.sleep(0.02)
    assert found == 1
    made.end()


def test_flushing_gives_up_in_time(made: Made) -> None:
    made.faults.delay(Step.OPEN, 0.3)
    left: list[int] = []
    for number in range(3):
        made.writer.offer(save(number))
    assert not made.writer.flush(timeout_s=0.1, progress=left.append)
    assert left and left[0] >= 2
    assert made.writer.flush(timeout_s=10)


def test_a_full_queue_says_so_and_an_empty_one_takes_anything(tmp_path: Path) -> None:
    made = Made(tmp_path, queue_bytes=2 * SIZE)
    made.faults.delay(Step.OPEN, 0.2)
    assert made.writer.offer(save(1, 10 * SIZE))
    assert not made.writer.offer(save(2))
    assert not made.writer.takes(1) and not made.writer.has_room
    assert made.writer.flush(timeout_s=10)
    assert made.writer.has_room and made.writer.queued_bytes == 0
    assert made.writer.offer(save(2)) and made.writer.offer(save(3))
    assert set(made.end()) == heads(1, 2, 3)


def test_a_removal_comes_after_what_was_offered_before(made: Made) -> None:
    for number in (1, 2):
        made.writer.offer(save(number))
    made.writer.remove(Remove(MY, block_head(run(1)).key))
    made.writer.remove(Remove(MY, b"never there"))
    made.writer.offer(save(3))
    assert set(made.end()) == heads(2, 3)
    assert {found.key for found in SsdFiles(made.directory).found()} == heads(2, 3)


@pytest.mark.parametrize("step", [Step.OPEN, Step.WRITTEN, Step.FLUSHED, Step.RENAMED])
def test_what_cannot_be_written_is_answered_with_the_reason(step: Step, made: Made) -> None:
    made.faults.fail(step, errno.ENOSPC, after=1)
    for number in (1, 2):
        made.writer.offer(save(number))
    made.writer.flush(timeout_s=10)
    first, second = made.writer.answers()
    assert first.error is None
    assert second.error is not None and second.error.errno == errno.ENOSPC
    made.faults.heal()
    made.writer.offer(save(2))
    assert set(made.end()) == heads(1, 2)


def test_a_catalog_that_cannot_be_written_stops_nothing(made: Made, caplog: pytest.LogCaptureFixture) -> None:
    """It is said once, files go on being written, and the next start finds them."""
    made.catalog._db.execute("PRAGMA query_only=1")
    with caplog.at_level(logging.WARNING):
        for number in range(3):
            made.writer.offer(save(number))
        made.writer.remove(Remove(MY, block_head(run(0)).key))
        assert made.writer.flush(timeout_s=10)
    assert [answer.error for answer in made.writer.answers()] == [None] * 3
    assert caplog.text.count("cannot be written") == 1
    assert {found.key for found in made.files.found()} == heads(1, 2)


CRASHES = [Step.OPEN, Step.WRITTEN, Step.FLUSHED, Step.RENAMED, Step.CATALOGUED, Step.COMMITTED]


def crash_child(directory: str, step: str, after: int) -> None:
    """In a process of its own: saves one prompt, commits it, then dies at `step` of another."""
    from tests.prefix.disk import Disk

    faults = FileFaults()
    disk = Disk(Path(directory), faults=faults)
    disk.put(counting(0, 10), logits=True)
    disk.flush()
    faults.crash(Step(step), after=after)
    disk.put(counting(100, 110), logits=True)
    disk.flush()
    raise SystemExit("no crash")


@pytest.mark.parametrize("after", [0, 2])
@pytest.mark.parametrize("step", CRASHES)
def test_a_crash_at_any_step_costs_nothing_committed(step: Step, after: int, tmp_path: Path) -> None:
    if step is Step.COMMITTED:
        after = 0
    call = "import sys; from tests.prefix.test_writer import crash_child as c; "
    call += "c(sys.argv[1], sys.argv[2], int(sys.argv[3]))"
    done = subprocess.run(
        [sys.executable, "-c", call, str(tmp_path), step.value, str(after)], check=False, timeout=60
    )
    assert done.returncode == CRASH_STATUS
    files = len(entry_files(tmp_path))
    whole = verify(tmp_path)
    assert whole.problems == () and whole.files == files, "what has its name is whole"
    with Disk(tmp_path) as disk:
        assert_clean(tmp_path)
        assert disk.restored(counting(0, 10)) == 10
        begun = after + (step in (Step.RENAMED, Step.CATALOGUED))
        blocks = 10 if step is Step.COMMITTED else min(4 * begun, 10)
        assert disk.restored(counting(100, 110)) in (blocks, blocks - 1)
        disk.put(counting(100, 110), logits=True)
    with Disk(tmp_path) as disk:
        assert disk.restored(counting(100, 110)) == 10
    assert_clean(tmp_path)


def test_heads_are_of_their_tokens() -> None:
    assert isinstance(save(1).head, Head)


def test_a_row_is_gone_for_good_before_its_file(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    listed: list[int] = []
    remove = made.files.remove

    def look(namespace: bytes, key: bytes) -> None:
        reader = Catalog(made.directory / CATALOG, read_only=True)
        listed.append(len(list(reader.listed())))
        reader.close()
        remove(namespace, key)

    monkeypatch.setattr(made.files, "remove", look)
    made.writer.offer(save(1))
    assert made.writer.flush(timeout_s=10)
    made.writer.remove(Remove(MY, block_head(run(1)).key))
    assert made.writer.flush(timeout_s=10)
    assert listed == [0] and list(made.files.found()) == []


def test_a_file_that_cannot_be_removed_stops_nothing(
    made: Made, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(made.files, "remove", refuse)
    made.writer.remove(Remove(MY, b"any"))
    made.writer.offer(save(1))
    assert made.writer.flush(timeout_s=10)
    assert len(made.writer.answers()) == 1 and "could not be removed" in caplog.text


def test_the_row_has_the_size_of_the_file_and_the_uses_the_entry_came_with(made: Made) -> None:
    """The order of use is that of the index, not that of the writes."""
    made.writer.offer(replace(save(1), hits=5, used_s=17.0))
    assert made.writer.flush(timeout_s=10)
    (answer,) = made.writer.answers()
    reader = Catalog(made.directory / CATALOG, read_only=True)
    (row,) = reader.listed()
    reader.close()
    assert (row.nbytes, row.hits, row.used_s) == (answer.file_bytes, 5, 17.0)


def test_the_queue_is_full_at_its_size_and_half_full_at_half(tmp_path: Path) -> None:
    made = Made(tmp_path, queue_bytes=2 * SIZE)
    made.faults.delay(Step.OPEN, 0.3)
    assert made.writer.offer(save(1))
    assert made.writer.has_room and made.writer.takes(SIZE) and not made.writer.takes(SIZE + 1)
    assert made.writer.offer(save(2))
    assert not made.writer.has_room and not made.writer.takes(1)
    assert made.writer.queued == 2
    assert set(made.end()) == heads(1, 2)


def test_flushing_waits_for_the_commit(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    commit = made.catalog.commit

    def slow() -> None:
        time.sleep(0.3)
        commit()

    monkeypatch.setattr(made.catalog, "commit", slow)
    made.writer.offer(save(1))
    assert made.writer.flush(timeout_s=10)
    reader = Catalog(made.directory / CATALOG, read_only=True)
    assert [row.key for row in reader.listed()] == list(heads(1))
    reader.close()


def test_whoever_waits_is_told_of_every_answer(made: Made) -> None:
    told: list[int] = []
    made.writer.on_answer = lambda: told.append(len(made.writer.answers()))
    for number in range(3):
        made.writer.offer(save(number))
    made.writer.close()
    assert len(told) == 3 and sum(told) == 3
