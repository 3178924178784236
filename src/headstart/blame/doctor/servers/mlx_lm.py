"""mlx_lm.server, which says next to nothing about itself."""

from __future__ import annotations

from collections.abc import Sequence

from headstart.blame.doctor.facts import ServerFacts
from headstart.blame.doctor.http import Loopback
from headstart.blame.doctor.processes import flags_of


def read(http: Loopback, commands: Sequence[Sequence[str]]) -> ServerFacts | None:
    health = http.get("/health")
    if health.body != {"status": "ok"} or not health.headers.get("server", "").startswith("BaseHTTP"):
        return None
    flags = flags_of("mlx-lm", http.port, commands)
    return ServerFacts("mlx-lm", http.url, speculative="--draft-model" in flags, flags=flags)
