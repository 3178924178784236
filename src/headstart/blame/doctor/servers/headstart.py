"""headstart itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from headstart.blame.doctor.facts import ServerFacts
from headstart.blame.doctor.http import Loopback, text, whole


def read(http: Loopback, commands: Sequence[Sequence[str]]) -> ServerFacts | None:
    models = http.get("/v1/models").entries("data")
    told = models[0].get("headstart") if models else None
    if not isinstance(told, Mapping):
        return None
    return ServerFacts(
        "headstart",
        http.url,
        version=text(http.get("/openapi.json").get("info", "version")),
        model=text(models[0].get("id")),
        context_tokens=whole(told.get("context_tokens")),
        window_tokens=whole(told.get("window_tokens")) or None,
        recurrent=bool(told.get("checkpoint_bytes")),
        speculative=told.get("speculate") not in (None, "off"),
        block_tokens=1,
    )
