"""A planted defect: how it bends a sound server, and which gate must catch it.

A lab server is the real stack (scheduler, prefix cache, API, metrics) on a toy engine, in this process,
behind uvicorn on a free port. A defect bends it at one of four places; it leaves the others as they are.
Adding a defect is adding one small class to a file in `lab/defects/` and to its `DEFECTS` tuple.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass
from typing import Any

from headstart.engines.base import Engine
from headstart.prefix.cache import PrefixCache
from headstart.serving.models import Generates
from headstart.serving.settings import SchedulerSettings

Message = MutableMapping[str, Any]
App = Callable[
    [MutableMapping[str, Any], Callable[[], Awaitable[Message]], Callable[[Message], Awaitable[None]]],
    Awaitable[None],
]


@dataclass(frozen=True)
class Defect:
    """Base of all defects; on its own, the sound server.

    `name`: short, for the command line and tests. `title`: one sentence, what the server does wrong.
    `caught_by`: gates (names in accept.gates.NAMES) of which at least one must FAIL; empty for the sound
    server, on which nothing may FAIL. `gates`: those the self-test runs against it; `caught_by` where
    empty. `layers`: kinds of the toy model's layers, where the defect needs certain ones ("attention",
    "window", "recurrent"); None: any. `ssd`: it needs a cache on disk. `restarts`: gates may stop and start
    it (the lab gives the session a Control whose restart makes a new scheduler over the same directory).
    """

    name: str = "sound"
    title: str = "does everything right"
    caught_by: tuple[str, ...] = ()
    gates: tuple[str, ...] = ()
    layers: tuple[str, ...] | None = None
    ssd: bool = False
    restarts: bool = False

    def settings(self, settings: SchedulerSettings) -> SchedulerSettings:
        """Other limits for the scheduler, e.g. a cache too small."""
        return settings

    def engine(self, engine: Engine) -> Engine:
        """An engine in front of `engine`: state restored wrong, one step ahead, of another sequence."""
        return engine

    def cache(self, cache: PrefixCache) -> PrefixCache:
        """The scheduler's cache, or one in front of it: plans rounded down, stale or foreign entries."""
        return cache

    def scheduler(self, scheduler: Generates) -> Generates:
        """What the API submits to: requests changed, replies emptied, cancelled work thrown away."""
        return scheduler

    def app(self, app: App) -> App:
        """ASGI in front of the API: fields left out or false, frames faked, prompts cut, options
        swallowed."""
        return app
