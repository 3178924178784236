"""One model of a lab server: engine, cache, scheduler and API, bent by a defect."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from headstart.api.app import create_app
from headstart.api.metrics import Observed, ServerMetrics
from headstart.chat.template import ChatTemplate
from headstart.config import Settings
from headstart.lab.defect import App, Defect
from headstart.lab.engine import RecallEngine
from headstart.prefix.cache import PrefixCache
from headstart.prefix.ssd_tier import SsdSettings, SsdTier
from headstart.serving.constraint import ConstraintCompiler
from headstart.serving.models import ServedModel
from headstart.serving.scheduler import Scheduler
from headstart.serving.settings import SchedulerSettings

FLUSH_S = 20.0
SETTINGS = SchedulerSettings(
    max_concurrent_requests=4,
    prefill_chunk_tokens=256,
    ram_cache_bytes=3 << 20,
    block_tokens=64,
    checkpoint_interval_tokens=512,
)


@dataclass(frozen=True)
class Pace:
    """How fast the toy model is: seconds to read a token, and of a step beside that."""

    token_s: float = 120e-6
    step_s: float = 1e-3


@dataclass(frozen=True)
class Shape:
    """What a lab server is like, its defect left out. `directory`: of the cache on disk. `cache` False:
    it has none at all, for comparison."""

    context_tokens: int = 4096
    pace: Pace = field(default_factory=Pace)
    directory: Path | None = None
    cache: bool = True


class BentScheduler(Scheduler):
    """A scheduler whose cache a defect may stand in front of."""

    defect: Defect

    def _make_cache(self, ssd: SsdTier | None) -> PrefixCache:
        return self.defect.cache(super()._make_cache(ssd))


class Stack:
    """A model with everything around it. `start`, then serve `app`, then `stop`."""

    def __init__(self, defect: Defect, shape: Shape, *, name: str, seed: int, created: int) -> None:
        engine = RecallEngine(
            defect.layers,
            context_tokens=shape.context_tokens,
            seed=seed,
            token_s=shape.pace.token_s,
            step_s=shape.pace.step_s,
            name=name,
        )
        self.engine = defect.engine(engine)
        settings = defect.settings(SETTINGS)
        if not shape.cache:
            settings = SchedulerSettings(prefill_chunk_tokens=256, cache_enabled=False)
        self.tier = self._open(defect, shape, settings.block_tokens)
        compiler = ConstraintCompiler(
            engine.vocabulary,
            engine.layout.vocab_size,
            lambda text: engine.tokenize(text, special=False, add_bos=False).tolist(),
        )
        kind = type("BentScheduler", (BentScheduler,), {"defect": defect})
        self.scheduler: Scheduler = kind(self.engine, settings, compiler, self.tier)
        self.metrics = ServerMetrics(self.scheduler.snapshot)
        self.served = ServedModel(
            name=name,
            engine_facts=self.engine.facts,
            layout=engine.layout,
            vocabulary=engine.vocabulary,
            tokenize=engine.tokenize,
            template=ChatTemplate(str(engine.facts.chat_template), bos="<|endoftext|>", eos="<|im_end|>"),
            scheduler=defect.scheduler(Observed(self.scheduler, self.metrics.observe)),
            constraints=compiler,
            created=created,
        )
        app = create_app(self.served, Settings(), scheduler=self.scheduler, metrics=self.metrics)
        self.app: App = app

    def _open(self, defect: Defect, shape: Shape, block_tokens: int) -> SsdTier | None:
        if shape.directory is None or not shape.cache:
            return None
        settings = SsdSettings(
            shape.directory, budget_bytes=256 << 20, reserve_bytes=0, flush_interval_s=0.05
        )
        return defect.tier(SsdTier(settings, self.engine.layout, block_tokens))

    def start(self) -> None:
        self.scheduler.start()

    @property
    def waiting_writes(self) -> int:
        """Entries on their way to the disk."""
        return 0 if self.tier is None else self.tier.statistics().waiting

    def stop(self) -> None:
        """Gracefully: what is not on disk yet is written."""
        self.scheduler.stop()
        if self.tier is not None:
            self.tier.flush(timeout_s=FLUSH_S)
            self.tier.close()
