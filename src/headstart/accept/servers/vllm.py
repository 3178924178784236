"""vLLM: /version, /v1/models, /tokenize and /metrics."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headstart.accept.exchange import Ask, Counters
from headstart.accept.servers import Facts, Http, listing, prometheus

_CONFIG = "vllm:cache_config_info"
_CACHE_LABELS = (
    "enable_prefix_caching",
    "cache_dtype",
    "num_gpu_blocks",
    "sliding_window",
    "mamba_block_size",
)


class Vllm:
    """Counts prompt tokens and those found in its prefix cache in /metrics. `cached_tokens` in replies
    needs --enable-prompt-tokens-details, so a reply without it is the usual case."""

    name = "vllm"
    title = "vLLM"
    wires: tuple[str, ...] = ("openai_chat", "openai_completions", "anthropic")
    no_cache: Mapping[str, Any] = {}
    thinking_off: Mapping[str, Any] = {"chat_template_kwargs": {"enable_thinking": False}}
    environment: tuple[str, ...] = ("VLLM_",)

    def recognise(self, http: Http) -> bool:
        return any(entry.get("owned_by") == "vllm" for entry in listing.models(http))

    def facts(self, http: Http, model: str | None) -> Facts:
        listed = listing.models(http)
        entry = listing.pick(listed, model, "id")
        found = prometheus.parse(http.get("/metrics").text)
        config = next((dict(sample.labels) for sample in found if sample.name == _CONFIG), {})
        speculates = any(sample.name.startswith("vllm:spec_decode") for sample in found)
        return Facts(
            server=self.title,
            version=listing.text(http.get("/version").get("version")),
            model=listing.text(entry.get("id")) or model,
            context_tokens=listing.whole(entry.get("max_model_len")),
            block_tokens=_block(config),
            recurrent=True if listing.whole(config.get("mamba_block_size")) else None,
            window_tokens=listing.whole(config.get("sliding_window")),
            speculative="on" if speculates else None,
            models=listing.names(listed),
            model_path=listing.text(entry.get("root")),
            adapters=tuple(str(one["id"]) for one in listed if one.get("parent") and one.get("id")),
            cache=listing.words(**{label: config.get(label) for label in _CACHE_LABELS}),
        )

    def counters(self, http: Http, model: str | None) -> Counters | None:
        answer = http.get("/metrics")
        found = prometheus.totals(prometheus.parse(answer.text), model=model) if answer.ok else {}
        if not any(name.startswith("vllm:") for name in found):
            return None
        prompt = prometheus.first(found, "vllm:prompt_tokens_total", "vllm:prompt_tokens")
        reused = prometheus.first(
            found,
            "vllm:prompt_tokens_cached_total",
            "vllm:prefix_cache_hits_total",
            "vllm:gpu_prefix_cache_hits_total",
        )
        return Counters(
            read_tokens=prometheus.less(prompt, reused),
            reused_tokens=reused,
            prompt_tokens=prompt,
            requests=prometheus.first(found, "vllm:request_success_total"),
            drafted=prometheus.first(found, "vllm:spec_decode_num_draft_tokens_total"),
            accepted=prometheus.first(found, "vllm:spec_decode_num_accepted_tokens_total"),
            all=found,
        )

    def tokens(self, http: Http, ask: Ask, wire: str, model: str | None) -> tuple[int, ...] | None:
        body: dict[str, Any] = {"model": ask.model or model}
        if ask.prompt is not None:
            body["prompt"] = ask.prompt
        elif wire == "openai_chat":
            body["messages"] = [{"role": one.role, "content": one.content} for one in ask.messages]
            body["add_generation_prompt"] = True
        else:
            return None
        found = http.post("/tokenize", body).get("tokens")
        return tuple(found) if isinstance(found, list) and all(type(one) is int for one in found) else None

    def clear(self, http: Http, model: str | None) -> bool:
        """Only with VLLM_SERVER_DEV_MODE=1."""
        return http.post("/reset_prefix_cache", {}).ok


def _block(config: Mapping[str, str]) -> int | None:
    """The step of restores: a hybrid's attention blocks and its recurrent ones must both be whole."""
    sizes = [listing.whole(config.get(name)) for name in ("block_size", "mamba_block_size")]
    return max((size for size in sizes if size), default=None)


SERVER = Vllm()
