"""oMLX: /v1/models, /v1/models/status, and the admin's statistics after a login with the API key.

The statistics print the API key in clear. Only named numbers are taken out of them, so it reaches
neither facts nor counters.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headstart.accept.exchange import Ask, Counters
from headstart.accept.servers import Answer, Facts, Http, listing

_STATS = "/admin/api/stats?scope=session"
_TOTALS = ("total_prompt_tokens", "total_cached_tokens", "total_completion_tokens", "total_requests")
_CACHE_COUNTS = (
    "prefix_hits",
    "prefix_misses",
    "prefix_tokens_saved",
    "evictions",
    "ssd_hot_hits",
    "ssd_disk_loads",
    "ssd_saves",
    "hot_cache_evictions",
    "hot_cache_promotions",
)
_CACHE_FACTS = ("num_files", "total_size_bytes", "max_size_bytes", "hot_cache_max_bytes", "hot_cache_entries")


class Omlx:
    """Its keep-alives are frames with empty content, sent before reading; they are no first token."""

    name = "omlx"
    title = "oMLX"
    wires: tuple[str, ...] = ("openai_chat", "openai_completions", "anthropic")
    no_cache: Mapping[str, Any] = {}
    thinking_off: Mapping[str, Any] = {"chat_template_kwargs": {"enable_thinking": False}}
    environment: tuple[str, ...] = ("OMLX_", "MLX_")

    def recognise(self, http: Http) -> bool:
        return any(entry.get("owned_by") == "omlx" for entry in listing.models(http))

    def facts(self, http: Http, model: str | None) -> Facts:
        listed = listing.models(http)
        entry = listing.pick(listed, model, "id")
        status = listing.pick(listing.entries(http.get("/v1/models/status"), "models"), model, "id", "alias")
        stats = _stats(http)
        cache = _cache(stats, model)
        return Facts(
            server=self.title,
            version=listing.text(http.get("/api/status").get("version")),
            model=listing.text(entry.get("id")) or model,
            context_tokens=listing.whole(entry.get("max_model_len") or status.get("max_context_window")),
            block_tokens=listing.whole(cache.get("block_size")),
            models=listing.names(listed),
            model_path=listing.text(status.get("model_path")),
            cache=listing.words(
                **{name: cache.get(name) for name in _CACHE_FACTS},
                ssd_cache_dir=stats.get("runtime_cache", "ssd_cache_dir"),
            ),
            parts={} if stats.ok else {"statistics": "not readable: they need the server's API key"},
        )

    def counters(self, http: Http, model: str | None) -> Counters | None:
        stats = _stats(http)
        if not stats.ok:
            return None
        found = {name: stats.get(name) for name in _TOTALS}
        counted = _cache(stats, model).get("cache_rates")
        counted = counted.get("cumulative") if isinstance(counted, Mapping) else None
        found |= {f"cache.{name}": counted.get(name) for name in _CACHE_COUNTS} if counted else {}
        known = {name: float(value) for name, value in found.items() if listing.whole(value) is not None}
        prompt, reused = known.get("total_prompt_tokens"), known.get("total_cached_tokens")
        return Counters(
            read_tokens=None if prompt is None or reused is None else prompt - reused,
            reused_tokens=reused,
            prompt_tokens=prompt,
            requests=known.get("total_requests"),
            ssd_loaded_entries=known.get("cache.ssd_disk_loads"),
            evictions=known.get("cache.evictions"),
            all=known,
        )

    def tokens(self, http: Http, ask: Ask, wire: str, model: str | None) -> tuple[int, ...] | None:
        return None

    def clear(self, http: Http, model: str | None) -> bool:
        """There is a way, and it is not taken: it deletes what every conversation of the person's has on
        disk."""
        return False


def _stats(http: Http) -> Answer:
    """The statistics, after a login where they ask for one."""
    answer = http.get(_STATS)
    if answer.status in (401, 403) and http.api_key is not None:
        http.post("/admin/api/login", {"api_key": http.api_key, "remember": False})
        answer = http.get(_STATS)
    return answer if answer.ok and isinstance(answer.body, Mapping) else Answer(answer.status or 0)


def _cache(stats: Answer, model: str | None) -> Mapping[str, Any]:
    return listing.pick(listing.entries(stats, "runtime_cache", "models"), model, "id")


SERVER = Omlx()
