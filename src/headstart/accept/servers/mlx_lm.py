"""mlx_lm.server: Python's own HTTP server with /health and /v1/models, and nothing that counts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headstart.accept.exchange import Ask, Counters
from headstart.accept.servers import Facts, Http, listing


class MlxLm:
    """Replies say `cached_tokens` since 0.31. It states neither version nor context, and a stream carries
    no log-probabilities."""

    name = "mlx_lm"
    title = "mlx_lm.server"
    wires: tuple[str, ...] = ("openai_chat", "openai_completions")
    no_cache: Mapping[str, Any] = {}
    thinking_off: Mapping[str, Any] = {"chat_template_kwargs": {"enable_thinking": False}}
    environment: tuple[str, ...] = ("MLX_",)

    def recognise(self, http: Http) -> bool:
        health = http.get("/health")
        # /v1/models is no sign: 0.32 closes the connection there where no hub cache exists.
        return health.headers.get("server", "").startswith("BaseHTTP") and health.body == {"status": "ok"}

    def facts(self, http: Http, model: str | None) -> Facts:
        listed = listing.names(listing.models(http))
        path = model if model and "/" in model and model.startswith(("/", ".", "~")) else None
        only = listed[0] if len(listed) == 1 else None
        loaded = path or (only if only and only.startswith("/") else None)
        return Facts(server=self.title, model=model or only, models=listed, model_path=loaded)

    def counters(self, http: Http, model: str | None) -> Counters | None:
        return None

    def tokens(self, http: Http, ask: Ask, wire: str, model: str | None) -> tuple[int, ...] | None:
        return None

    def clear(self, http: Http, model: str | None) -> bool:
        return False


SERVER = MlxLm()
