"""POST /api/chat, Ollama's own format: one JSON object a line."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from headstart.accept.exchange import Ask
from headstart.accept.wires import Framing, Piece, openai


@dataclass(frozen=True)
class Ollama:
    """Ollama's chat. Options of an Ask are put at the top; `options` among them is merged."""

    name: str = "ollama"
    path: str = "/api/chat"
    chat: bool = True
    scores: bool = True
    framing: Framing = Framing.LINES
    ends_with_done: bool = True

    def headers(self, api_key: str | None) -> dict[str, str]:
        return openai.headers(api_key)

    def body(self, ask: Ask, model: str | None) -> dict[str, Any]:
        options: dict[str, Any] = {"temperature": ask.temperature, "num_predict": ask.max_tokens}
        if ask.seed is not None:
            options["seed"] = ask.seed
        if ask.stop:
            options["stop"] = list(ask.stop)
        body: dict[str, Any] = {
            "model": ask.model or model or "",
            "messages": [{"role": m.role, "content": m.content} for m in ask.messages],
            "stream": ask.stream,
            "think": False,
        }
        if ask.logprobs:
            body |= {"logprobs": True, "top_logprobs": ask.logprobs}
        given = dict(ask.options)
        options |= dict(openai.mapping(given.pop("options", None)))
        return body | given | {"options": options}

    def event(self, payload: str) -> Piece:
        data = openai.parse(payload)
        error = openai.error_of(data)
        if error is not None:
            return Piece(error=error)
        said = openai.mapping(data.get("message"))
        return Piece(
            text=str(said.get("content") or ""),
            reasoning=str(said.get("thinking") or ""),
            scores=openai.content_scores({"content": data.get("logprobs")}),
            finish=data.get("done_reason") or ("stop" if data.get("done") else None),
            prompt_tokens=openai.whole(data.get("prompt_eval_count")),
            completion_tokens=openai.whole(data.get("eval_count")),
            reused=openai.whole(data.get("prompt_eval_cached_count")),
            server_prompt_s=_from_ns(data.get("prompt_eval_duration")),
            server_decode_s=_from_ns(data.get("eval_duration")),
            usage=_told(data),
            warnings=openai.warnings(data),
            done=bool(data.get("done")),
        )

    def reply(self, body: bytes) -> Piece:
        return self.event(body.decode("utf-8"))


def _from_ns(value: Any) -> float | None:
    return float(value) / 1e9 if isinstance(value, int | float) else None


def _told(data: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in data.items() if key.endswith(("_count", "_duration"))}


WIRE = Ollama()
