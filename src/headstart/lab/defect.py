"""A planted defect: how it bends a sound server, and which gate must catch it.

A lab server is the real stack (scheduler, prefix cache, API, metrics) on a toy engine, in this process,
behind uvicorn on a free port. A defect bends it at one of a few places; it leaves the others as they
are. Adding a defect is adding one small class to a file in `lab/defects/` and to its `DEFECTS` tuple.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from headstart.engines.toy_model import LayerKind
from headstart.lab.engine import RecallEngine
from headstart.prefix.cache import PrefixCache
from headstart.prefix.ssd_tier import SsdTier
from headstart.serving.models import Generates
from headstart.serving.settings import SchedulerSettings

Message = MutableMapping[str, Any]
App = Callable[
    [MutableMapping[str, Any], Callable[[], Awaitable[Message]], Callable[[Message], Awaitable[None]]],
    Awaitable[None],
]
Thing = TypeVar("Thing")


def recast(kind: type[Thing], thing: Thing) -> Thing:
    """`thing` as a `kind`, a subclass of its own class, over the same attributes: what one does the other
    sees. How a defect gets between the layers without a copy of their state."""
    other = kind.__new__(kind)
    other.__dict__ = thing.__dict__
    return other


class Defect:
    """Base of all defects; on its own, it changes nothing. One instance bends one server, from its first
    start to its last, so it may keep what it has seen.

    `name`: short, for the command line and tests. `title`: one sentence, what the server does wrong.
    `caught_by`: gates (names in accept.gates.NAMES) of which at least one must FAIL, the likeliest first;
    empty for a sound server, on which nothing may FAIL. `layers`: of the toy model ("full", "window",
    "recurrent"). `ssd`: it has a cache on disk.
    """

    name: ClassVar[str] = "sound"
    title: ClassVar[str] = "does everything right"
    caught_by: ClassVar[tuple[str, ...]] = ()
    layers: ClassVar[tuple[LayerKind, ...]] = ("full",)
    ssd: ClassVar[bool] = False

    def settings(self, settings: SchedulerSettings) -> SchedulerSettings:
        """Other limits for the scheduler, e.g. a cache too small."""
        return settings

    def engine(self, engine: RecallEngine) -> RecallEngine:
        """The engine, or one in front of it: state restored wrong, one step ahead, of another sequence."""
        return engine

    def cache(self, cache: PrefixCache) -> PrefixCache:
        """The scheduler's cache, or one in front of it: plans rounded down, stale or foreign entries."""
        return cache

    def tier(self, tier: SsdTier) -> SsdTier:
        """The cache on disk, or one in front of it: bytes lost on the way."""
        return tier

    def scheduler(self, scheduler: Generates) -> Generates:
        """What the API submits to: requests changed, replies emptied, cancelled work thrown away."""
        return scheduler

    def app(self, app: App) -> App:
        """ASGI in front of the API: fields left out or false, frames faked, prompts cut, options
        swallowed."""
        return app

    def stopped(self, directory: Path | None, *, killed: bool) -> None:
        """The server is down and about to come up again over `directory`."""


class Sound(Defect):
    """The server as it is, with a cache on disk."""

    ssd = True


class SoundHybrid(Sound):
    """The same with a model that has every kind of layer: it cannot be taken back to any token."""

    name = "sound-hybrid"
    layers = ("full", "window", "recurrent")


SOUND: tuple[type[Defect], ...] = (Sound, SoundHybrid)
