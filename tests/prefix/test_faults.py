"""The injector spoils the reads it was told to, and no others."""

from __future__ import annotations

import errno
import time
from pathlib import Path

import numpy as np
import pytest

from headstart.prefix.faults import Fault, FaultInjector, FileFaults, Step
from tests.prefix.fake import DENSE, MY, rows_of, run


def test_without_orders_everything_passes() -> None:
    faults = FaultInjector()
    payload = object()
    assert faults.pass_on(payload) is payload
    assert faults.reads == 1


def test_each_fault_once_at_its_read() -> None:
    faults = FaultInjector()
    faults.spoil(Fault.LOSE, after_reads=1)
    faults.spoil(Fault.FAIL, after_reads=2)
    faults.spoil(Fault.TRUNCATE, after_reads=3)
    faults.spoil(Fault.TRUNCATE, after_reads=4)
    assert faults.pass_on(b"state") == b"state"
    assert faults.pass_on(b"state") is None
    with pytest.raises(OSError, match="injected"):
        faults.pass_on(b"state")
    assert faults.pass_on(b"state") == b"stat"
    rows = faults.pass_on(rows_of(DENSE, MY, run(1, 2), 0, 2))
    assert len(rows) == 1  # type: ignore[arg-type]
    assert faults.pass_on(b"state") == b"state"


def test_steps_fail_from_the_one_that_was_named(tmp_path: Path) -> None:
    faults = FileFaults()
    faults.at(Step.OPEN, tmp_path)
    faults.fail(Step.OPEN, errno.ENOSPC, after=1)
    faults.at(Step.OPEN, tmp_path)
    faults.at(Step.WRITTEN, tmp_path)
    with pytest.raises(OSError, match="No space left") as caught:
        faults.at(Step.OPEN, tmp_path)
    assert caught.value.errno == errno.ENOSPC
    assert faults.steps[Step.OPEN] == 3
    faults.heal()
    faults.at(Step.OPEN, tmp_path)


def test_steps_can_take_longer(tmp_path: Path) -> None:
    faults = FileFaults()
    faults.delay(Step.READ, 0.05)
    started_s = time.monotonic()
    faults.at(Step.READ, tmp_path)
    assert time.monotonic() - started_s >= 0.05


def test_what_is_read_can_be_cut_and_flipped() -> None:
    faults = FileFaults()
    data = np.arange(10, dtype=np.uint8)
    assert faults.seen(data) is data
    faults.short_read(lambda size: size // 2)
    faults.flip_bit(lambda size: size - 1, 3)
    assert faults.seen(data).tolist() == [0, 1, 2, 3, 4 ^ 8]
    assert data.tolist() == list(range(10))
