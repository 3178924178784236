"""The injector spoils the reads it was told to, and no others."""

from __future__ import annotations

import pytest

from headstart.prefix.faults import Fault, FaultInjector
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
