"""Lab servers whose speed is not steady, and that keep to themselves what they reuse."""

from __future__ import annotations

import math
import time
from collections.abc import MutableMapping, Sequence
from typing import Any

from headstart.accept.gates import load
from headstart.accept.report.build import Run
from headstart.accept.runner import Means, Runner
from headstart.accept.verdict import Verdict
from headstart.engines.base import Logits, Step
from headstart.lab.defect import App, Defect, Sound, recast
from headstart.lab.defects.counting import with_cached
from headstart.lab.engine import RecallEngine
from headstart.lab.front import Receive, Send
from headstart.lab.rewriting import rewriting
from headstart.lab.selftest import Bench
from headstart.lab.server import LabServer
from headstart.lab.stack import Pace, Shape

SWING_S = 3.7
"""From one slow moment to the next."""


class _Drifts(RecallEngine):
    def forward(self, steps: Sequence[Step]) -> list[Logits | None]:
        token_s, step_s = self.__dict__.setdefault("lab_pace", (self._token_s, self._step_s))
        factor = 2.0 ** math.sin(2 * math.pi * time.monotonic() / SWING_S)
        self._token_s, self._step_s = factor * token_s, factor * step_s
        return super().forward(steps)


class Drifting(Sound):
    """Half as fast and twice as fast in turn; otherwise sound."""

    name = "drifting"

    def engine(self, engine: RecallEngine) -> RecallEngine:
        return recast(_Drifts, engine)


def silent(app: App) -> App:
    """`app` without a word about what was reused, in replies or metrics."""

    async def unmetered(scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"] == "/metrics":
            await send({"type": "http.response.start", "status": 404, "headers": []})
            await send({"type": "http.response.body", "body": b""})
            return
        await app(scope, receive, send)

    return rewriting(unmetered, answered=lambda _, payload: with_cached(payload, lambda _: None))


class SilentDrifting(Drifting):
    name = "silent-drifting"

    def app(self, app: App) -> App:
        return silent(app)


class Silent(Defect):
    name = "silent"

    def app(self, app: App) -> App:
        return silent(app)


def verdicts(
    defect: type[Defect], gates: Sequence[str], *, cache: bool = True, pace: Pace | None = None
) -> list[Verdict]:
    """What the gates say of such a server."""
    bench = Bench(defect)
    bench.server = LabServer(defect(), Shape(cache=cache, pace=pace or Pace()))
    with bench:
        run = Run(url=bench.server.url, salt="drift", started=time.time())
        session = bench.session("d21f7a90")
        Runner(run, [load(name) for name in gates], Means(control=True)).run(session)
    return run.verdicts
