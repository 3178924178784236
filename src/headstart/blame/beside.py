"""A process beside the proxy that takes in what passed, so that no byte on its way waits for that.

Parsing, judging and recording a large request keep an interpreter busy for a tenth of a second; a thread
would have the streams of everybody else wait for it.
"""

from __future__ import annotations

import contextlib
import pickle
import queue
import subprocess
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import BinaryIO

from headstart.blame.proxy.passing import Passing

WAITING_BYTES = 512 << 20
"""Of what passed and was not taken in yet. What comes on top is let go, and that is said."""


class Beside:
    """Runs `command`, which reads what `handed` yields from its standard input until that ends. `troubled` is
    told what was not handed over."""

    def __init__(
        self, command: Sequence[str], troubled: Callable[[str], None], keep_open: Sequence[int] = ()
    ) -> None:
        # In a session of its own, it does not hear the Ctrl-C that ends the proxy, and goes on to its end.
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, start_new_session=True, pass_fds=keep_open
        )
        self._troubled = troubled
        self._waiting: queue.SimpleQueue[Passing | None] = queue.SimpleQueue()
        self._bytes = 0
        self._lock = threading.Lock()
        self._lost = 0
        self._thread = threading.Thread(target=self._hand_over, name="headstart-watch", daemon=True)
        self._thread.start()

    def finished(self, passing: Passing) -> None:
        """Takes what passed. Returns at once."""
        nbytes = passing.kept_bytes
        with self._lock:
            if self._bytes and self._bytes + nbytes > WAITING_BYTES:
                self._lost += 1
                return
            self._bytes += nbytes
        self._waiting.put(passing)

    def close(self) -> None:
        """Hands over what is left, and waits until it is taken in; not longer than the user does."""
        self._waiting.put(None)
        try:
            self._thread.join()
            self._process.wait()
        except KeyboardInterrupt:
            self._process.kill()
            self._process.wait()

    def _hand_over(self) -> None:
        assert self._process.stdin is not None
        try:
            while (passing := self._waiting.get()) is not None:
                try:
                    pickle.dump(passing, self._process.stdin, protocol=5)
                    self._process.stdin.flush()
                finally:
                    with self._lock:
                        self._bytes -= passing.kept_bytes
                        lost, self._lost = self._lost, 0
                if lost:
                    self._troubled(f"{lost} exchanges passed faster than they can be judged, and were let go")
        except OSError:
            self._troubled(
                "what judges and records has ended; all is passed on as before, but nothing is shown or "
                "recorded until this program is started again"
            )
            with self._lock:
                self._bytes = 2 * WAITING_BYTES
        finally:
            with contextlib.suppress(OSError):
                self._process.stdin.close()


def handed(stream: BinaryIO) -> Iterator[Passing]:
    """What passed, as it comes in on `stream` from a `Beside`."""
    while True:
        try:
            passing = pickle.load(stream)
        except (EOFError, pickle.UnpicklingError):
            return  # The proxy was killed.
        yield passing
