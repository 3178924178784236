"""A server that is none of the known ones: what OpenAI's API tells, and /metrics where there is one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from headstart.accept.exchange import Ask, Counters
from headstart.accept.servers import Facts, Http, prometheus


@dataclass(frozen=True)
class Generic:
    name: str = "generic"
    title: str = "OpenAI-compatible server"
    wires: tuple[str, ...] = ("openai_chat", "openai_completions", "anthropic", "ollama")
    no_cache: Mapping[str, Any] = field(default_factory=dict)
    thinking_off: Mapping[str, Any] = field(default_factory=dict)
    environment: tuple[str, ...] = ("OMLX_", "OLLAMA_", "LLAMA_", "MLX_", "HEADSTART_")

    def recognise(self, http: Http) -> bool:
        return True

    def facts(self, http: Http, model: str | None) -> Facts:
        listed = [one for one in http.get("/v1/models").get("data") or () if isinstance(one, Mapping)]
        names = tuple(str(one.get("id")) for one in listed)
        entry = next((one for one in listed if one.get("id") == model), listed[0] if listed else {})
        context = entry.get("max_model_len") or entry.get("context_length")
        return Facts(
            server=self.title,
            model=model or (names[0] if names else None),
            context_tokens=context if isinstance(context, int) else None,
            models=names,
        )

    def counters(self, http: Http, model: str | None) -> Counters | None:
        return prometheus.counters(prometheus.scrape(http), {})

    def tokens(self, http: Http, ask: Ask, wire: str, model: str | None) -> tuple[int, ...] | None:
        return None

    def clear(self, http: Http, model: str | None) -> bool:
        return False


SERVER = Generic()
