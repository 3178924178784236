"""SGLang: /get_server_info, /v1/models, /tokenize, /flush_cache, and /metrics where it is switched on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headstart.accept.exchange import Ask, Counters
from headstart.accept.servers import Answer, Facts, Http, listing, prometheus

_CACHE_OPTIONS = (
    "disable_radix_cache",
    "enable_hierarchical_cache",
    "kv_cache_dtype",
    "chunked_prefill_size",
)


class Sglang:
    """`cached_tokens` in replies needs --enable-cache-report, counters need --enable-metrics."""

    name = "sglang"
    title = "SGLang"
    wires: tuple[str, ...] = ("openai_chat", "openai_completions")
    no_cache: Mapping[str, Any] = {}
    thinking_off: Mapping[str, Any] = {"chat_template_kwargs": {"enable_thinking": False}}
    environment: tuple[str, ...] = ("SGLANG_", "SGL_")

    def recognise(self, http: Http) -> bool:
        return any(entry.get("owned_by") == "sglang" for entry in listing.models(http))

    def facts(self, http: Http, model: str | None) -> Facts:
        listed = listing.models(http)
        entry = listing.pick(listed, model, "id")
        info = _info(http)
        return Facts(
            server=self.title,
            version=listing.text(info.get("version")),
            model=listing.text(entry.get("id")) or model,
            context_tokens=listing.whole(entry.get("max_model_len") or info.get("context_length")),
            slots=listing.whole(info.get("max_running_requests")),
            block_tokens=listing.whole(info.get("page_size")),
            speculative=listing.text(info.get("speculative_algorithm")),
            models=listing.names(listed),
            model_path=listing.text(info.get("model_path")),
            adapters=tuple(str(one["id"]) for one in listed if one.get("parent") and one.get("id")),
            cache=listing.words(**{name: info.get(name) for name in _CACHE_OPTIONS}),
            parts=listing.words(cache_tokens=info.get("max_total_num_tokens")),
        )

    def counters(self, http: Http, model: str | None) -> Counters | None:
        answer = http.get("/metrics")
        found = prometheus.totals(prometheus.parse(answer.text), model=model) if answer.ok else {}
        if not any(name.startswith("sglang:") for name in found):
            return None
        prompt = found.get("sglang:prompt_tokens_total")
        reused = found.get("sglang:cached_tokens_total")
        return Counters(
            read_tokens=prometheus.less(prompt, reused),
            reused_tokens=reused,
            prompt_tokens=prompt,
            requests=found.get("sglang:num_requests_total"),
            evictions=found.get("sglang:evicted_tokens_total"),
            all=found,
        )

    def tokens(self, http: Http, ask: Ask, wire: str, model: str | None) -> tuple[int, ...] | None:
        if ask.prompt is None:
            return None
        found = http.post("/tokenize", {"model": ask.model or model, "prompt": ask.prompt}).get("tokens")
        return tuple(found) if isinstance(found, list) and all(type(one) is int for one in found) else None

    def clear(self, http: Http, model: str | None) -> bool:
        return http.post("/flush_cache", {}).ok


def _info(http: Http) -> Mapping[str, Any]:
    for path in ("/get_server_info", "/server_info"):
        answer: Answer = http.get(path)
        if answer.ok and isinstance(answer.body, Mapping):
            return answer.body
    return {}


SERVER = Sglang()
