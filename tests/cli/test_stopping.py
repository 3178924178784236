"""Signals: the first is an exception, a second Ctrl-C is the end."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

from headstart.cli.stopping import Stop, stoppable

TWICE = """
import signal
from headstart.cli.stopping import stoppable
with stoppable():
    try:
        signal.raise_signal(signal.{first})
    except KeyboardInterrupt:
        signal.raise_signal(signal.{second})
    print("went on")
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_signal_is_an_exception_and_handlers_come_back(number: signal.Signals) -> None:
    before = signal.getsignal(number)
    with pytest.raises(Stop), stoppable():
        signal.raise_signal(number)
    assert signal.getsignal(number) is before


@pytest.mark.parametrize(
    ("first", "second", "status"),
    [("SIGINT", "SIGINT", 130), ("SIGTERM", "SIGINT", 130), ("SIGTERM", "SIGTERM", 0)],
)
def test_only_an_interrupt_ends_at_once(first: str, second: str, status: int) -> None:
    code = TWICE.format(first=first, second=second)
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=30, check=False
    )
    assert done.returncode == status
    assert ("went on" in done.stdout) == (status == 0)
    assert ("left at once" in done.stderr) == (status == 130)
