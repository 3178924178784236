"""headstart's own server, seen from outside like any other."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from headstart.accept.exchange import Ask, Counters
from headstart.accept.servers import Facts, Http, prometheus

_PROMPT = "headstart_prompt_tokens_total"


@dataclass(frozen=True)
class Headstart:
    name: str = "headstart"
    title: str = "headstart"
    wires: tuple[str, ...] = ("openai_chat", "openai_completions", "anthropic", "ollama")
    no_cache: Mapping[str, Any] = field(default_factory=lambda: {"cache_prompt": False})
    thinking_off: Mapping[str, Any] = field(
        default_factory=lambda: {"chat_template_kwargs": {"enable_thinking": False}}
    )
    environment: tuple[str, ...] = ("HEADSTART_", "LLAMA_", "GGML_")

    def recognise(self, http: Http) -> bool:
        return isinstance(http.get("/v1/models").get("data", 0, "headstart"), Mapping)

    def facts(self, http: Http, model: str | None) -> Facts:
        models = http.get("/v1/models")
        listed = [one for one in models.get("data") or () if isinstance(one, Mapping)]
        entry = next((one for one in listed if one.get("id") == model), listed[0] if listed else {})
        told = entry.get("headstart") or {}
        version = http.get("/openapi.json").get("info", "version")
        adapters = tuple(str(a.get("name", a)) for a in told.get("adapters") or () if isinstance(a, Mapping))
        shown = ("engine", "architecture", "state_proved", "exact_repeat", "restore_equals_cold", "notes")
        return Facts(
            server=self.title,
            version=version,
            model=str(entry.get("id")) if entry else model,
            context_tokens=told.get("context_tokens"),
            block_tokens=1,
            recurrent=bool(told.get("checkpoint_bytes")),
            window_tokens=told.get("window_tokens") or None,
            models=tuple(str(one.get("id")) for one in listed),
            adapters=adapters,
            speculative=None if told.get("speculate") in (None, "off") else str(told["speculate"]),
            cache=_tiers(http),
            parts={name: str(told[name]) for name in shown if told.get(name) not in (None, [], "")},
        )

    def counters(self, http: Http, model: str | None) -> Counters | None:
        found = prometheus.scrape(http)
        if not found:
            return None
        kinds: dict[str, float] = {}
        for name, value in found.items():
            if name.startswith(_PROMPT + "{"):
                kind = name.partition("kind=")[2].partition(",")[0].rstrip("}")
                kinds[kind] = kinds.get(kind, 0.0) + value
        return Counters(
            read_tokens=kinds.get("new", 0.0) + kinds.get("replayed", 0.0),
            reused_tokens=kinds.get("restored", 0.0),
            prompt_tokens=sum(kinds.values()),
            requests=found.get("headstart_finished_requests_total", 0.0),
            ssd_read_bytes=found.get("headstart_ssd_read_bytes_total"),
            evictions=found.get("headstart_cache_evictions_total"),
            drafted=found.get("headstart_drafted_tokens_total"),
            accepted=found.get("headstart_accepted_tokens_total"),
            all=found,
        )

    def tokens(self, http: Http, ask: Ask, wire: str, model: str | None) -> tuple[int, ...] | None:
        if wire == "openai_completions":
            body: dict[str, Any] = {"content": ask.prompt, "add_special": True}
        else:
            body = {
                "messages": [{"role": m.role, "content": m.content} for m in ask.messages],
                "add_generation_prompt": True,
            }
            for name in ("chat_template_kwargs", "tools"):
                if name in ask.options:
                    body[name] = ask.options[name]
        found = http.post("/tokenize", body).get("tokens")
        return tuple(found) if isinstance(found, list) else None

    def clear(self, http: Http, model: str | None) -> bool:
        return False


def _tiers(http: Http) -> dict[str, str]:
    """The tiers of its cache with their limits, "off" for one it does without."""
    told = http.get("/v1/headstart/cache")
    if not told.ok:
        return {}
    found = {}
    for name in ("ram", "ssd"):
        limit = told.get(name, "limit_bytes")
        found[f"{name}_cache"] = "off" if limit is None else f"{limit} bytes"
    return found


SERVER = Headstart()
