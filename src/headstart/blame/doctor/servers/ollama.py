"""Ollama: what runs (/api/ps) and what the model is (/api/show, which loads nothing)."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from headstart.blame.doctor.facts import ServerFacts
from headstart.blame.doctor.http import Loopback, text, whole

CACHE_MIB = 8192
"""Of the llama.cpp server in every runner, and of the MLX runner's snapshots."""
_NUM_CTX = re.compile(r"^num_ctx\s+(\d{1,9})", re.MULTILINE)


def read(http: Loopback, commands: Sequence[Sequence[str]]) -> ServerFacts | None:
    version = text(http.get("/api/version").get("version"))
    if version is None or not isinstance(http.get("/api/ps").get("models"), list):
        return None
    running = http.get("/api/ps").entries("models")
    if not running:
        return ServerFacts("ollama", http.url, version=version, loaded=False, cache_mib=CACHE_MIB)
    entry = running[0]
    name = text(entry.get("name")) or ""
    shown = http.post("/api/show", {"model": name})
    info = shown.get("model_info")
    info = info if isinstance(info, Mapping) else {}
    set_context = _NUM_CTX.search(text(shown.get("parameters")) or "")
    return ServerFacts(
        "ollama",
        http.url,
        version=version,
        model=name,
        context_tokens=whole(entry.get("context_length")) or (int(set_context[1]) if set_context else None),
        trained_tokens=whole(_ending(info, ".context_length")),
        model_bytes=whole(entry.get("size")),
        gpu_bytes=whole(entry.get("size_vram")),
        cache_mib=CACHE_MIB,
        window_tokens=whole(_ending(info, ".attention.sliding_window")),
        recurrent=any(".ssm." in key or key.endswith(".shortconv.l_cache") for key in info) if info else None,
    )


def _ending(info: Mapping[str, Any], suffix: str) -> Any:
    return next((value for key, value in info.items() if key.endswith(suffix)), None)
