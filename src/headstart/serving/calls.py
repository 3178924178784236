"""Questions to the engine thread from other threads: asked at any moment, answered between two steps."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

from headstart.errors import EngineError

Answer = TypeVar("Answer")


class Calls:
    """Work that others want done on one thread. `wake` tells that thread that there is some."""

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        self._lock = threading.Lock()
        self._asked: deque[tuple[Future[Any], Callable[[], Any]]] = deque()
        self._closed: EngineError | None = None

    def ask(self, work: Callable[[], Answer]) -> Future[Answer]:
        """Any thread: has `work` done there. The future gets what it answers or raises, or EngineError
        where the thread ends first."""
        future: Future[Answer] = Future()
        with self._lock:
            if self._closed is not None:
                future.set_exception(self._closed)
                return future
            self._asked.append((future, work))
        self._wake()
        return future

    def run(self) -> None:
        """On that thread: does everything asked so far. What `work` raises concerns its asker alone."""
        for _ in range(len(self._asked)):
            future, work = self._asked.popleft()
            if not future.set_running_or_notify_cancel():
                continue
            try:
                future.set_result(work())
            except Exception as error:  # noqa: BLE001 - handed on to whoever asked
                future.set_exception(error)

    def close(self, why: EngineError) -> None:
        """The thread ends: what was asked, and what is asked from now on, fails with `why`."""
        with self._lock:
            self._closed = why
            left, self._asked = self._asked, deque()
        for future, _ in left:
            if future.set_running_or_notify_cancel():
                future.set_exception(why)
