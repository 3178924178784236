"""headstart in this process with replies that are given, and what was asked of its engine.

The real application, scheduler, cache and engine; `headstart.lab.scripted` puts the replies into the model's
mouth, token by token.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import numpy as np

from headstart.cli.engines import load_engine
from headstart.cli.server import assemble
from headstart.config import Settings
from headstart.lab.scripted import Rule, scripted
from headstart.prefix.tokens import TokenRun
from headstart.serving.request import Delta, GenerationRequest
from headstart.serving.scheduler import Scheduler, Ticket
from tests.api.served import http_server

CONTEXT_TOKENS = 65536
TEMPLATE = Path(__file__).parent / "chatml.jinja"


@dataclass
class Asked:
    """One request as the engine got it. `reply`: the tokens that it was answered with, but for the end."""

    prompt: TokenRun
    text: str
    reply: list[int] = field(default_factory=list)

    @property
    def left_behind(self) -> TokenRun:
        """The tokens whose rows exist once it is answered."""
        return np.concatenate([self.prompt, np.array(self.reply, np.int32)])


@dataclass(frozen=True)
class Watched:
    """A running server: its address, and its requests in the order in which they came."""

    url: str
    asked: list[Asked]

    def reports(self) -> list[dict[str, Any]]:
        """The server's own report of each request, in the order of `asked`."""
        listed = self._get("/v1/headstart/requests").json()["data"]
        ended = [self._get(f"/v1/headstart/requests/{one['id']}").json()["replies"][0] for one in listed]
        found = []
        for one in self.asked:
            report = next(report for report in ended if report["prompt_tokens"] == len(one.prompt))
            ended.remove(report)
            found.append(report)
        assert not ended, f"reports of requests that the engine never got: {ended}"
        return found

    def statuses(self) -> set[str]:
        """The HTTP statuses of all that was answered."""
        counted = [line for line in self._get("/metrics").text.splitlines() if "http_requests_total{" in line]
        return {status for line in counted for status in re.findall(r'status="(\d+)"', line)}

    def _get(self, path: str) -> httpx.Response:
        return httpx.get(f"{self.url}{path}", timeout=30)


def watching(rules: Sequence[Rule], asked: list[Asked]) -> type[Scheduler]:
    """A scheduler that answers by `rules` and notes in `asked` what it was asked."""
    answering = scripted(rules)

    class WatchingScheduler(answering):  # type: ignore[valid-type, misc]
        def submit(self, request: GenerationRequest, sink: Callable[[Any], None]) -> Ticket:
            pieces = self._engine.vocabulary.pieces
            text = b"".join(pieces[token] for token in request.prompt.tolist()).decode("utf-8", "replace")
            one = Asked(request.prompt, text)
            asked.append(one)

            def noting(event: Any) -> None:
                if isinstance(event, Delta):
                    one.reply.append(event.token)
                sink(event)

            return super().submit(request, noting)

    return WatchingScheduler


@contextmanager
def watched_server(model: str, rules: Sequence[Rule], base: Path, **changes: Any) -> Iterator[Watched]:
    """`model` (a path, or `embedded`) behind a free port; `changes` are settings of `headstart serve`."""
    asked: list[Asked] = []
    chosen: dict[str, Any] = {
        "ctx_size": CONTEXT_TOKENS,
        "threads": 1,
        "chat_template": str(TEMPLATE),
        "ssd_cache_bytes": 0,
    }
    settings = Settings(model=model, engine="llamacpp", base_path=str(base), **(chosen | changes))
    engine = load_engine(settings, lambda done, total: None)
    scheduler, app = assemble(settings, engine, load_s=0.0, scheduling=watching(rules, asked))
    scheduler.start()
    try:
        with http_server(app) as url:
            yield Watched(url, asked)
    finally:
        scheduler.stop()
        engine.shutdown()
