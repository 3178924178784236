"""Ollama: /api/version, /api/ps, /api/tags and /api/show; what it reused stands in each reply."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from headstart.accept.exchange import Ask, Counters
from headstart.accept.servers import Answer, Facts, Http, listing

_NUM_CTX = re.compile(r"^num_ctx\s+(\d+)", re.MULTILINE)


class Ollama:
    """The context is that of the running model (/api/ps): the model's own limit says nothing of where
    the server cuts. `load` of a request with another `num_ctx` starts the model anew."""

    name = "ollama"
    title = "Ollama"
    wires: tuple[str, ...] = ("ollama", "openai_chat", "openai_completions", "anthropic")
    no_cache: Mapping[str, Any] = {}
    thinking_off: Mapping[str, Any] = {"think": False}
    environment: tuple[str, ...] = ("OLLAMA_",)

    def recognise(self, http: Http) -> bool:
        if "Ollama is running" in http.get("/").text:
            return True
        return bool(listing.text(http.get("/api/version").get("version"))) and isinstance(
            http.get("/api/ps").get("models"), list
        )

    def facts(self, http: Http, model: str | None) -> Facts:
        running = listing.entries(http.get("/api/ps"), "models")
        stored = listing.entries(http.get("/api/tags"), "models")
        entry = _named(running, model)
        name = model or listing.text(entry.get("name"))
        shown = http.post("/api/show", {"model": name}) if name else Answer(0)
        info = shown.get("model_info")
        info = info if isinstance(info, Mapping) else {}
        return Facts(
            server=self.title,
            version=listing.text(http.get("/api/version").get("version")),
            model=name,
            context_tokens=listing.whole(entry.get("context_length")) or _set_context(shown),
            recurrent=_recurrent(info) if info else None,
            window_tokens=listing.whole(_ending(info, ".attention.sliding_window")),
            models=listing.names(stored, "name"),
            digests={
                one["name"]: one["digest"]
                for one in stored
                if listing.text(one.get("digest")) and "name" in one
            },
            parts=listing.words(
                architecture=info.get("general.architecture"),
                quantization=shown.get("details", "quantization_level"),
                largest_context=_ending(info, ".context_length"),
                in_gpu_bytes=entry.get("size_vram"),
                in_memory_bytes=entry.get("size"),
            ),
        )

    def counters(self, http: Http, model: str | None) -> Counters | None:
        return None

    def tokens(self, http: Http, ask: Ask, wire: str, model: str | None) -> tuple[int, ...] | None:
        return None

    def clear(self, http: Http, model: str | None) -> bool:
        """Unloads the model, and its cache with it; the next request loads it again."""
        name = model or listing.text(_named(listing.entries(http.get("/api/ps"), "models"), None).get("name"))
        return name is not None and http.post("/api/generate", {"model": name, "keep_alive": 0}).ok


def _named(listed: list[Mapping[str, Any]], model: str | None) -> Mapping[str, Any]:
    """The entry of `model`, with or without ":latest"."""
    found = listing.pick(listed, model, "name", "model")
    if found or model is None or ":" in model:
        return found
    return listing.pick(listed, f"{model}:latest", "name", "model")


def _set_context(shown: Answer) -> int | None:
    """num_ctx of the model's own parameters, for a model that does not run yet."""
    match = _NUM_CTX.search(listing.text(shown.get("parameters")) or "")
    return int(match[1]) if match else None


def _ending(info: Mapping[str, Any], suffix: str) -> Any:
    return next((value for key, value in info.items() if key.endswith(suffix)), None)


def _recurrent(info: Mapping[str, Any]) -> bool:
    return any(".ssm." in key or key.endswith(".shortconv.l_cache") for key in info)


SERVER = Ollama()
