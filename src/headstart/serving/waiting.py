"""The requests that wait: for their turn, for another's prefill, or for state to come from the SSD."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator

from headstart.errors import RequestError
from headstart.serving.placement import Placement
from headstart.serving.request import Failed
from headstart.serving.sequence import Running

MOST_FETCHES = 4
"""Requests whose state may be on its way from the SSD at one time."""


class Waiting:
    """The queue between arrival and start, in order of arrival. Engine thread only."""

    def __init__(self) -> None:
        self._runs: deque[Running] = deque()

    def __len__(self) -> int:
        return len(self._runs)

    def __iter__(self) -> Iterator[Running]:
        """Over a copy: requests may leave meanwhile."""
        return iter(list(self._runs))

    def add(self, runs: deque[Running]) -> None:
        self._runs.extend(runs)

    def put_back(self, run: Running) -> None:
        """`run` stepped aside and is the next to start."""
        self._runs.appendleft(run)

    def remove(self, run: Running) -> None:
        self._runs.remove(run)

    def startable(self) -> bool:
        """Whether a request waits for nothing but its turn."""
        return any(not run.fetching for run in self._runs)

    def fetch(self, placement: Placement, running: list[Running], wake: Callable[[], None]) -> None:
        """Moves on what comes back from the SSD, and starts fetching for requests that still queue."""
        for run in self._runs:
            if run.fetch is not None:
                run.fetch.advance()
            elif not run.looked_on_ssd and sum(r.fetching for r in self._runs) < MOST_FETCHES:
                run.looked_on_ssd = True
                run.fetch = placement.fetch(run, running, wake)

    def drop_cancelled(self) -> int:
        """Lets go of requests whose clients have gone; answers how many."""
        gone = [run for run in self._runs if run.cancelled]
        for run in gone:
            self._runs.remove(run)
            run.end_fetch()
            run.fail(Failed(RequestError("cancelled before it was started", status=499)))
        return len(gone)
