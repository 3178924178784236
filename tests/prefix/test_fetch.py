"""State on its way from the SSD: in order, kept until used, and a miss with its reason where it fails."""

from __future__ import annotations

import errno
import logging
import threading
from pathlib import Path

import pytest

from headstart.prefix.cache import Restored
from headstart.prefix.faults import FileFaults, Step
from headstart.prefix.fetch import AHEAD, Fetch
from headstart.prefix.keys import token_bytes
from headstart.prefix.report import Reason
from headstart.prefix.ssd import StoreFileError
from headstart.prefix.tokens import TokenRun
from headstart.prefix.tree import Mark
from tests.prefix.disk import Disk, path_of
from tests.prefix.fake import MY, NO_HINTS, RECURRENT, counting, glue, run


class Started:
    """A fetch under way, and the event that its readers set."""

    def __init__(self, disk: Disk, prompt: TokenRun) -> None:
        self.woken = threading.Event()
        self.disk = disk
        self.plan = disk.cache.plan(MY, prompt, [], NO_HINTS)
        fetch = disk.cache.fetch(self.plan, self.woken.set)
        assert fetch is not None
        self.fetch: Fetch = fetch

    def finish(self) -> Fetch:
        while not self.fetch.advance():
            assert self.woken.wait(10), "nothing came"
            self.woken.clear()
        return self.fetch


def stored(directory: Path, tokens: TokenRun, **options: object) -> None:
    with Disk(directory) as disk:
        disk.put(tokens, **options)


def test_what_came_is_counted_and_kept_until_it_is_used(tmp_path: Path) -> None:
    stored(tmp_path, counting(0, 18), logits=True)
    with Disk(tmp_path, ram_bytes=40_000) as disk:
        started = Started(disk, counting(0, 18))
        assert (started.plan.restore_at, started.plan.ssd_at) == (0, 18)
        fetch = started.finish()
        assert (fetch.tokens, fetch.reason) == (18, None)
        assert fetch.nbytes == 18 * 20 + 20
        assert fetch.elapsed_s > 0
        for number in range(1, 60):
            disk.put(counting(number * 100, number * 100 + 9))
        assert disk.restored(counting(0, 18)) == 18, "not evicted while the fetch is open"
        fetch.close()
        fetch.close()
        assert disk.tier.statistics().read_bytes == fetch.nbytes


def test_nothing_is_fetched_that_ram_has(tmp_path: Path) -> None:
    stored(tmp_path, counting(0, 18), logits=True)
    with Disk(tmp_path) as disk:
        disk.put(counting(0, 10))
        fetch = Started(disk, counting(0, 18)).finish()
        assert fetch.tokens == 8
        fetch.close()
        assert disk.cache.fetch(disk.cache.plan(MY, counting(0, 18), [], NO_HINTS), lambda: None) is None
        assert disk.restored(counting(0, 18)) == 18


def test_only_a_few_reads_are_under_way(tmp_path: Path) -> None:
    stored(tmp_path, counting(0, 100))
    faults = FileFaults()
    with Disk(tmp_path, faults=faults) as disk:
        faults.delay(Step.READ, 0.005)
        started = Started(disk, counting(0, 101))
        while not started.fetch.advance():
            assert len(started.fetch._reading) <= AHEAD
            assert started.woken.wait(10)
            started.woken.clear()
        assert started.fetch.tokens == 100
        started.fetch.close()


@pytest.mark.parametrize("block", [0, 2, 4])
@pytest.mark.parametrize("fault", ["corrupt", "gone", "io"])
def test_what_lies_before_a_failure_is_kept(fault: str, block: int, tmp_path: Path) -> None:
    stored(tmp_path, counting(0, 18), logits=True)
    faults = FileFaults()
    with Disk(tmp_path, faults=faults) as disk:
        path = path_of(disk, counting(0, 18), block)
        if fault == "corrupt":
            path.write_bytes(path.read_bytes()[:-1])
        elif fault == "gone":
            path.unlink()
        else:
            faults._order(Step.READ, lambda read: fail_for(read, path))
        fetch = Started(disk, counting(0, 18)).finish()
        assert fetch.reason is (Reason.CORRUPT if fault == "corrupt" else Reason.IO_ERROR)
        assert fetch.tokens == 4 * block
        fetch.close()
        faults.heal()
        assert disk.restored(counting(0, 18)) == (18 if fault == "io" else 4 * block)
        disk.put(counting(0, 18), logits=True)
    with Disk(tmp_path) as disk:
        assert disk.restored(counting(0, 18)) == 18


@pytest.mark.parametrize("well_between", [False, True])
def test_a_read_error_may_pass_once(tmp_path: Path, well_between: bool) -> None:
    """One that comes again takes the entry with it, or every request would run into it."""
    stored(tmp_path, counting(0, 18), logits=True)
    error = StoreFileError(Reason.IO_ERROR, "injected", passing=True)
    with Disk(tmp_path) as disk:
        tier, prompt = disk.tier, token_bytes(counting(0, 18))
        path = path_of(disk, counting(0, 18), 2)
        block = tier.match(MY, prompt).blocks[2]
        tier.lose(block, error)
        assert tier.match(MY, prompt).length == 18
        if well_between:
            tier.used([block])
        tier.lose(block, error)
        disk.flush()
        left = tier.match(MY, prompt).length, path.exists()
        assert left == ((18, True) if well_between else (8, False))
        assert tier.counts.read_failures == 2


def fail_for(read: Path, path: Path) -> None:
    if read == path:
        raise OSError(errno.EIO, "injected")


def test_pins_hold_while_the_disk_is_cleared(tmp_path: Path) -> None:
    stored(tmp_path, counting(0, 18))
    faults = FileFaults()
    with Disk(tmp_path, faults=faults) as disk:
        faults.delay(Step.READ, 0.01)
        started = Started(disk, counting(0, 19))
        assert list(disk.tier.shelf.evict_to(0)) == []
        assert started.finish().tokens == 18
        started.fetch.close()
        assert len(list(disk.tier.shelf.evict_to(0))) == 5


def test_a_mark_that_was_evicted_meanwhile_is_no_error(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with Disk(tmp_path, layout=RECURRENT) as disk:
        disk.put(counting(0, 18), checkpoints=[17])
    faults = FileFaults()
    with Disk(tmp_path, layout=RECURRENT, faults=faults) as disk:
        faults.delay(Step.READ, 0.02)
        started = Started(disk, counting(0, 19))
        gone = list(disk.tier.shelf.evict_to(0))
        assert gone and all(isinstance(entry, Mark) for entry in gone)
        for entry in gone:
            disk.tier._forget(entry)
        disk.flush()
        fetch = started.finish()
        assert fetch.reason is Reason.EVICTED
        fetch.close()
        assert [r for r in caplog.records if r.levelno >= logging.WARNING] == []


@pytest.mark.parametrize("delay_s", [0.0, 0.02, 0.1])
def test_a_tail_that_grows_while_it_is_read(delay_s: float, tmp_path: Path) -> None:
    """The shorter file goes; the longer one has the same rows at its beginning."""
    stored(tmp_path, counting(0, 6))
    faults = FileFaults()
    with Disk(tmp_path, faults=faults) as disk:
        faults.delay(Step.READ, delay_s)
        started = Started(disk, counting(0, 20))
        disk.put(counting(0, 8))
        disk.flush()
        fetch = started.finish()
        assert fetch.reason is None
        fetch.close()
        assert disk.restored(counting(0, 9)) == 8


def test_a_fetch_that_nobody_wants_any_more(tmp_path: Path) -> None:
    stored(tmp_path, counting(0, 60))
    faults = FileFaults()
    with Disk(tmp_path, faults=faults) as disk:
        faults.delay(Step.READ, 0.01)
        started = Started(disk, counting(0, 61))
        started.fetch.close()
        assert started.fetch.advance()
        assert len(list(disk.tier.shelf.evict_to(0))) == 15, "nothing stays pinned"


def test_two_requests_for_the_same_state(tmp_path: Path) -> None:
    stored(tmp_path, counting(0, 30))
    with Disk(tmp_path) as disk:
        first, second = Started(disk, counting(0, 31)), Started(disk, glue(counting(0, 25), run(99)))
        second.finish().close()
        first.finish().close()
        for prompt, length in ((counting(0, 31), 30), (glue(counting(0, 25), run(99)), 25)):
            answer = disk.bring(prompt)
            assert isinstance(answer, Restored) and answer.position == length


def test_ram_too_small_for_what_comes(tmp_path: Path) -> None:
    stored(tmp_path, counting(0, 80))
    with Disk(tmp_path, ram_bytes=6_000) as disk:
        fetch = Started(disk, counting(0, 81)).finish()
        assert 0 < fetch.tokens < 80
        fetch.close()
