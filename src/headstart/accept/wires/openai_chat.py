"""POST /v1/chat/completions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from headstart.accept.exchange import Ask
from headstart.accept.wires import Framing, Piece, openai


@dataclass(frozen=True)
class OpenAIChat:
    """OpenAI's chat completions, with the reasoning fields and timings local servers add."""

    name: str = "openai_chat"
    path: str = "/v1/chat/completions"
    chat: bool = True
    scores: bool = True
    framing: Framing = Framing.SSE
    ends_with_done: bool = True

    def headers(self, api_key: str | None) -> dict[str, str]:
        return openai.headers(api_key)

    def body(self, ask: Ask, model: str | None) -> dict[str, Any]:
        body = openai.common_body(ask, model)
        body["messages"] = [{"role": m.role, "content": m.content} for m in ask.messages]
        if ask.logprobs:
            body |= {"logprobs": True, "top_logprobs": ask.logprobs}
        return body | dict(ask.options)

    def event(self, payload: str) -> Piece:
        if payload == openai.DONE:
            return Piece(done=True)
        return self._piece(payload, "delta")

    def reply(self, body: bytes) -> Piece:
        return self._piece(body, "message")

    def _piece(self, payload: str | bytes, part: str) -> Piece:
        data = openai.parse(payload)
        error = openai.error_of(data)
        if error is not None:
            return Piece(error=error)
        choice = openai.choice(data)
        said = openai.mapping(choice.get(part))
        return Piece(
            text=str(said.get("content") or ""),
            reasoning=str(said.get("reasoning_content") or said.get("reasoning") or ""),
            scores=openai.content_scores(choice.get("logprobs")),
            finish=choice.get("finish_reason"),
            **openai.numbers(data),
        )


WIRE = OpenAIChat()
