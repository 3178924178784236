"""The command line against real stores and a real HTTP server with a toy model."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from headstart.cli import main
from headstart.cli.server import assemble
from headstart.config import Settings
from headstart.engines.toy import ToyEngine
from headstart.prefix.ssd_tier import SsdSettings, SsdTier
from tests.api.served import http_server

BLOCK_TOKENS = 16


@contextmanager
def running(directory: Path, **changes: Any) -> Iterator[str]:
    """A server over the store in `directory`; gives its URL. Leaving it saves everything."""
    settings = Settings(engine="toy", block_size=BLOCK_TOKENS, **changes)
    engine = ToyEngine(context_tokens=2048)
    tier = SsdTier(SsdSettings(directory, 1 << 30, reserve_bytes=0), engine.layout, BLOCK_TOKENS)
    scheduler, app = assemble(settings, engine, 0.0, tier)
    scheduler.start()
    try:
        with http_server(app) as url:
            yield url
    finally:
        scheduler.stop()
        assert tier.flush(timeout_s=20) == 0
        tier.close()


@dataclass
class Shown:
    """What a command answered with."""

    status: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


class Cache:
    """`headstart cache` over one store, in this process."""

    def __init__(self, directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.directory = directory
        self._capsys = capsys

    def __call__(self, action: str, *arguments: str | Path, store: bool = True) -> Shown:
        place = ["--ssd-cache-dir", str(self.directory)] if store else []
        self._capsys.readouterr()
        status = main(["cache", action, *map(str, arguments), *place])
        shown = self._capsys.readouterr()
        return Shown(status, shown.out, shown.err)
