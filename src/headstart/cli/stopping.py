"""How a server is told to stop: once in order, twice at once."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn

INTERRUPTED = 130


class Stop(KeyboardInterrupt):
    """SIGINT or SIGTERM, wherever the program happens to be."""


@contextmanager
def stoppable() -> Iterator[None]:
    """The first SIGINT or SIGTERM raises Stop inside, so that it is left in order. A SIGINT after
    that ends the process on the spot; a SIGTERM after that changes nothing. Main thread only."""
    told = False

    def stop(number: int, _: FrameType | None) -> None:
        nonlocal told
        if not told:
            told = True
            raise Stop
        if number == signal.SIGINT:
            leave_at_once()

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def leave_at_once() -> NoReturn:
    """Ends the process without another step. What is on disk is whole at every moment."""
    text = "headstart: left at once; what was not on disk yet is lost, what is there stays good\n"
    # A signal may have come in the middle of a print, so the stream's own buffer is not used.
    os.write(sys.stderr.fileno(), text.encode())
    os._exit(INTERRUPTED)
