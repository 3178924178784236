"""LM Studio: its own lists of models under /api/v1 and /api/v0; nothing that counts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headstart.accept.exchange import Ask, Counters
from headstart.accept.servers import Facts, Http, listing


class LmStudio:
    """Its log tells what was reused, its replies do not: the clock has to judge."""

    name = "lmstudio"
    title = "LM Studio"
    wires: tuple[str, ...] = ("openai_chat", "openai_completions", "anthropic")
    no_cache: Mapping[str, Any] = {}
    thinking_off: Mapping[str, Any] = {}
    environment: tuple[str, ...] = ("LMS_", "LMSTUDIO_", "LM_")

    def recognise(self, http: Http) -> bool:
        newer = any("loaded_instances" in entry for entry in _newer(http))
        return newer or any({"state", "compatibility_type"} <= entry.keys() for entry in _older(http))

    def facts(self, http: Http, model: str | None) -> Facts:
        older, newer = _older(http), _newer(http)
        loaded = [one for one in older if one.get("state") == "loaded"]
        entry = listing.pick(older, model, "id") if model else listing.pick(loaded, None)
        return Facts(
            server=self.title,
            model=model or listing.text(entry.get("id")),
            context_tokens=listing.whole(entry.get("loaded_context_length")) or _context(newer, model),
            models=listing.names(older) or listing.names(newer, "key"),
            parts=listing.words(
                architecture=entry.get("arch"),
                engine=entry.get("compatibility_type"),
                quantization=entry.get("quantization"),
                state=entry.get("state"),
                largest_context=entry.get("max_context_length"),
            ),
        )

    def counters(self, http: Http, model: str | None) -> Counters | None:
        return None

    def tokens(self, http: Http, ask: Ask, wire: str, model: str | None) -> tuple[int, ...] | None:
        return None

    def clear(self, http: Http, model: str | None) -> bool:
        return False


def _older(http: Http) -> list[Mapping[str, Any]]:
    return listing.entries(http.get("/api/v0/models"), "data")


def _newer(http: Http) -> list[Mapping[str, Any]]:
    return listing.entries(http.get("/api/v1/models"), "models")


def _context(newer: list[Mapping[str, Any]], model: str | None) -> int | None:
    """The context of the loaded instance that `model` names; of the only one where none is named."""
    found = []
    for entry in newer:
        loaded = entry.get("loaded_instances")
        for instance in loaded if isinstance(loaded, list) else ():
            config = instance.get("config") if isinstance(instance, Mapping) else None
            if isinstance(config, Mapping) and model in (None, entry.get("key"), instance.get("id")):
                found.append(listing.whole(config.get("context_length")))
    return found[0] if len(found) == 1 else None


SERVER = LmStudio()
