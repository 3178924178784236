"""vLLM: /v1/models for the context, /metrics for its cache's settings."""

from __future__ import annotations

import re
from collections.abc import Sequence

from headstart.blame.doctor.facts import ServerFacts
from headstart.blame.doctor.http import Loopback, text, whole
from headstart.blame.doctor.processes import flags_of

_LABEL = re.compile(r'(\w{1,60})="([^"\n]{0,100})"')


def read(http: Loopback, commands: Sequence[Sequence[str]]) -> ServerFacts | None:
    models = [one for one in http.get("/v1/models").entries("data") if one.get("owned_by") == "vllm"]
    if not models:
        return None
    metrics = http.get("/metrics").text
    at = metrics.find("vllm:cache_config_info{")
    labels = dict(_LABEL.findall(metrics[at : metrics.find("\n", at)])) if at >= 0 else {}
    flags = flags_of("vllm", http.port, commands)
    blocks = [whole(labels.get(name)) for name in ("block_size", "mamba_block_size")]
    return ServerFacts(
        "vllm",
        http.url,
        version=text(http.get("/version").get("version")),
        model=text(models[0].get("id")),
        context_tokens=whole(models[0].get("max_model_len")),
        recurrent=True if blocks[1] else None,
        window_tokens=whole(labels.get("sliding_window")),
        speculative="vllm:spec_decode" in metrics or "--speculative-config" in flags,
        prefix_caching={"True": True, "False": False}.get(labels.get("enable_prefix_caching", "")),
        block_tokens=max((size for size in blocks if size), default=None),
        flags=flags,
    )
