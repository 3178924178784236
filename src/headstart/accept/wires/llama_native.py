"""POST /completion, llama-server's own format."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from headstart.accept.exchange import Ask, Score
from headstart.accept.wires import Framing, Piece, openai


@dataclass(frozen=True)
class LlamaNative:
    """llama-server's completion: text is continued as it stands; `timings` tell what was reused."""

    name: str = "llama_native"
    path: str = "/completion"
    chat: bool = False
    scores: bool = True
    framing: Framing = Framing.SSE
    ends_with_done: bool = True

    def headers(self, api_key: str | None) -> dict[str, str]:
        return openai.headers(api_key)

    def body(self, ask: Ask, model: str | None) -> dict[str, Any]:
        body: dict[str, Any] = {
            "prompt": ask.prompt or "",
            "n_predict": ask.max_tokens,
            "temperature": ask.temperature,
            "stream": ask.stream,
            "cache_prompt": True,
        }
        if ask.model or model:
            body["model"] = ask.model or model
        if ask.seed is not None:
            body["seed"] = ask.seed
        if ask.stop:
            body["stop"] = list(ask.stop)
        if ask.logprobs:
            body["n_probs"] = ask.logprobs
        return body | dict(ask.options)

    def event(self, payload: str) -> Piece:
        data = openai.parse(payload)
        error = openai.error_of(data)
        if error is not None:
            return Piece(error=error)
        ended = bool(data.get("stop"))
        found = openai.numbers(data)
        if found["prompt_tokens"] is None and ended:
            found["prompt_tokens"] = openai.whole(data.get("tokens_evaluated"))
        found["completion_tokens"] = openai.whole(data.get("tokens_predicted")) if ended else None
        return Piece(
            text=str(data.get("content") or ""),
            scores=_scores(data.get("completion_probabilities")),
            finish=(str(data.get("stop_type") or "stop")) if ended else None,
            done=ended,
            **found,
        )

    def reply(self, body: bytes) -> Piece:
        return self.event(body.decode("utf-8"))


def _scores(entries: Any) -> tuple[Score, ...]:
    return openai.content_scores({"content": entries if isinstance(entries, list) else []})


WIRE = LlamaNative()
