"""LM Studio: its own listing of models."""

from __future__ import annotations

from collections.abc import Sequence

from headstart.blame.doctor.facts import ServerFacts
from headstart.blame.doctor.http import Loopback, text, whole


def read(http: Loopback, commands: Sequence[Sequence[str]]) -> ServerFacts | None:
    models = http.get("/api/v0/models").entries("data")
    if not any({"state", "compatibility_type"} <= one.keys() for one in models):
        return None
    loaded = next((one for one in models if one.get("state") == "loaded"), None)
    if loaded is None:
        return ServerFacts("lmstudio", http.url, loaded=False)
    return ServerFacts(
        "lmstudio",
        http.url,
        model=text(loaded.get("id")),
        context_tokens=whole(loaded.get("loaded_context_length")),
        trained_tokens=whole(loaded.get("max_context_length")),
    )
