"""POST /v1/completions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from headstart.accept.exchange import Ask, Score
from headstart.accept.wires import Framing, Piece, openai


@dataclass(frozen=True)
class OpenAICompletions:
    """OpenAI's text completions: the prompt is continued as it stands."""

    name: str = "openai_completions"
    path: str = "/v1/completions"
    chat: bool = False
    scores: bool = True
    framing: Framing = Framing.SSE
    ends_with_done: bool = True

    def headers(self, api_key: str | None) -> dict[str, str]:
        return openai.headers(api_key)

    def body(self, ask: Ask, model: str | None) -> dict[str, Any]:
        body = openai.common_body(ask, model) | {"prompt": ask.prompt or ""}
        if ask.logprobs:
            body["logprobs"] = ask.logprobs
        return body | dict(ask.options)

    def event(self, payload: str) -> Piece:
        return Piece(done=True) if payload == openai.DONE else self._piece(payload)

    def reply(self, body: bytes) -> Piece:
        return self._piece(body)

    def _piece(self, payload: str | bytes) -> Piece:
        data = openai.parse(payload)
        error = openai.error_of(data)
        if error is not None:
            return Piece(error=error)
        choice = openai.choice(data)
        logprobs = choice.get("logprobs")
        return Piece(
            text=str(choice.get("text") or ""),
            scores=openai.content_scores(logprobs) or _listed_scores(logprobs),
            finish=choice.get("finish_reason"),
            **openai.numbers(data),
        )


def _listed_scores(logprobs: Any) -> tuple[Score, ...]:
    """Scores as this format has them: parallel lists of tokens, log-probabilities and alternatives."""
    lists = openai.mapping(logprobs)
    tokens, values = lists.get("tokens") or (), lists.get("token_logprobs") or ()
    tops = lists.get("top_logprobs") or [{}] * len(tokens)
    return tuple(
        Score(
            str(token),
            float(value),
            {str(k): float(v) for k, v in openai.mapping(top).items() if isinstance(v, int | float)},
        )
        for token, value, top in zip(tokens, values, tops, strict=False)
        if isinstance(value, int | float)
    )


WIRE = OpenAICompletions()
