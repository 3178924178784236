"""oMLX and SGLang, which name themselves in /v1/models."""

from __future__ import annotations

from collections.abc import Sequence

from headstart.blame.doctor.facts import ServerFacts
from headstart.blame.doctor.http import Loopback, text, whole


def read(http: Loopback, commands: Sequence[Sequence[str]]) -> ServerFacts | None:
    for model in http.get("/v1/models").entries("data"):
        if model.get("owned_by") == "omlx":
            status = http.get("/api/status")
            return ServerFacts(
                "omlx",
                http.url,
                version=text(status.get("version")),
                model=text(model.get("id")),
                context_tokens=whole(model.get("max_model_len")),
            )
        if model.get("owned_by") == "sglang":
            info = http.get("/get_server_info")
            return ServerFacts(
                "sglang",
                http.url,
                version=text(info.get("version")),
                model=text(model.get("id")),
                context_tokens=whole(model.get("max_model_len")),
                slots=whole(info.get("max_running_requests")),
                block_tokens=whole(info.get("page_size")),
                speculative=text(info.get("speculative_algorithm")) is not None,
                prefix_caching=False if info.get("disable_radix_cache") is True else None,
            )
    return None
