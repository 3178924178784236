"""Real stores, made by a toy engine behind a scheduler, for the tests that look at what is on disk."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from headstart.engines.toy import ToyEngine
from headstart.prefix.ssd_tier import SsdSettings, SsdTier
from headstart.prefix.tokens import TokenRun
from headstart.serving.scheduler import Scheduler
from tests.serving.harness import SETTINGS, CountingToy, Server

BLOCK_TOKENS = SETTINGS.block_tokens


class Storing(Server):
    """A server over the store in `directory`; leaving it saves everything, as an orderly stop does."""

    def __init__(self, directory: Path, engine: ToyEngine | None = None, **changes: object) -> None:
        self.engine = engine or CountingToy(("full", "full"))
        self.tier = SsdTier(
            SsdSettings(directory, 1 << 30, reserve_bytes=0), self.engine.layout, BLOCK_TOKENS
        )
        self.scheduler = Scheduler(
            self.engine,
            replace(SETTINGS, **changes),  # type: ignore[arg-type]
            ssd=self.tier,
        )

    def __exit__(self, *_: object) -> None:
        self.scheduler.stop()
        assert self.tier.flush(timeout_s=20) == 0
        self.tier.close()


@contextmanager
def store_of(
    directory: Path, prompts: Sequence[TokenRun], engine: ToyEngine | None = None, max_tokens: int = 1
) -> Iterator[None]:
    """A store in which `prompts` were served one after the other, closed again."""
    with Storing(directory, engine) as server:
        for prompt in prompts:
            server.ask(prompt, max_tokens)
    yield


def make_store(
    directory: Path, *prompts: TokenRun, engine: ToyEngine | None = None, max_tokens: int = 1
) -> Path:
    """As `store_of`; answers `directory`."""
    with store_of(directory, prompts, engine, max_tokens):
        return directory


def files_of(directory: Path) -> dict[str, bytes]:
    """Every entry file of a store and what is in it."""
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for path in sorted(directory.rglob("*.safetensors"))
    }
