"""llama.cpp's own server."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from headstart.accept.exchange import Ask, Counters
from headstart.accept.servers import Facts, Http, prometheus

_COUNTERS = {
    "read_tokens": "llamacpp:prompt_tokens_total",
    "reused_tokens": "llamacpp:prompt_tokens_cached_total",
    "drafted": "llamacpp:n_draft_total",
    "accepted": "llamacpp:n_draft_accepted_total",
}


@dataclass(frozen=True)
class LlamaServer:
    """`/metrics` counts only with --metrics; without it there are no counters."""

    name: str = "llama_server"
    title: str = "llama-server"
    wires: tuple[str, ...] = ("openai_chat", "openai_completions", "llama_native", "anthropic")
    no_cache: Mapping[str, Any] = field(default_factory=lambda: {"cache_prompt": False})
    thinking_off: Mapping[str, Any] = field(
        default_factory=lambda: {"chat_template_kwargs": {"enable_thinking": False}}
    )
    environment: tuple[str, ...] = ("LLAMA_", "GGML_")

    def recognise(self, http: Http) -> bool:
        return isinstance(http.get("/props").get("default_generation_settings"), Mapping)

    def facts(self, http: Http, model: str | None) -> Facts:
        props = http.get("/props")
        listed = http.get("/v1/models").get("data") or ()
        names = tuple(str(one.get("id")) for one in listed if isinstance(one, Mapping))
        context = props.get("default_generation_settings", "n_ctx")
        speculative = props.get("default_generation_settings", "speculative")
        return Facts(
            server=self.title,
            version=props.get("build_info"),
            model=model or (names[0] if names else None),
            context_tokens=context if isinstance(context, int) and context > 0 else None,
            slots=props.get("total_slots"),
            speculative="on" if speculative is True else None,
            models=names,
            model_path=props.get("model_path"),
            parts={"chat_template": "given" if props.get("chat_template") else "none"},
        )

    def counters(self, http: Http, model: str | None) -> Counters | None:
        return prometheus.counters(prometheus.scrape(http), _COUNTERS)

    def tokens(self, http: Http, ask: Ask, wire: str, model: str | None) -> tuple[int, ...] | None:
        text = ask.prompt
        if text is None:
            body = {"messages": [{"role": m.role, "content": m.content} for m in ask.messages]}
            text = http.post("/apply-template", {**body, **_template_fields(ask)}).get("prompt")
        if not isinstance(text, str):
            return None
        answer = http.post("/tokenize", {"content": text, "add_special": True, "parse_special": True})
        found = answer.get("tokens")
        return tuple(found) if isinstance(found, list) else None

    def clear(self, http: Http, model: str | None) -> bool:
        return False


def _template_fields(ask: Ask) -> dict[str, Any]:
    return {name: ask.options[name] for name in ("chat_template_kwargs",) if name in ask.options}


SERVER = LlamaServer()
