"""The JSON of OpenAI's replies: whole completions, stream chunks, log-probabilities."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from headstart.serving.models import ServedModel
from headstart.serving.request import Delta, Finished, TokenLogprob

_LEAST_LOGPROB = -9999.0
"""What OpenAI gives for a probability of zero; JSON has no infinity."""


@dataclass(frozen=True)
class Form:
    """What tells the two completion endpoints' replies apart."""

    id_prefix: str
    whole: str
    chunk: str
    chat: bool


CHAT = Form("chatcmpl-", "chat.completion", "chat.completion.chunk", chat=True)
TEXT = Form("cmpl-", "text_completion", "text_completion", chat=False)


class LogprobWriter:
    """Log-probabilities of one reply, in the shape of its endpoint, piece after piece."""

    def __init__(self, model: ServedModel, form: Form) -> None:
        self._model = model
        self._form = form
        self._offset = 0

    def write(self, deltas: Sequence[Delta]) -> dict[str, Any] | None:
        """The `logprobs` object for `deltas`; None where none were asked for."""
        shown = [delta for delta in deltas if delta.logprob is not None]
        if not shown:
            return None
        return self._chat(shown) if self._form.chat else self._text(shown)

    def _chat(self, deltas: Sequence[Delta]) -> dict[str, Any]:
        content = []
        for delta in deltas:
            entry = self._entry(TokenLogprob(delta.token, delta.logprob or 0.0))
            entry["top_logprobs"] = [self._entry(likely) for likely in delta.top]
            content.append(entry)
        return {"content": content, "refusal": None}

    def _text(self, deltas: Sequence[Delta]) -> dict[str, Any]:
        """`text_offset` counts characters of the reply, as completions never echo the prompt."""
        tokens, offsets = [], []
        for delta in deltas:
            piece = self._piece(delta.token).decode("utf-8", "replace")
            tokens.append(piece)
            offsets.append(self._offset)
            self._offset += len(piece)
        top = [
            {
                self._piece(likely.token).decode("utf-8", "replace"): _finite(likely.logprob)
                for likely in delta.top
            }
            for delta in deltas
        ]
        return {
            "tokens": tokens,
            "token_logprobs": [_finite(delta.logprob or 0.0) for delta in deltas],
            "top_logprobs": top if any(top) else None,
            "text_offset": offsets,
        }

    def _entry(self, likely: TokenLogprob) -> dict[str, Any]:
        piece = self._piece(likely.token)
        return {
            "token": piece.decode("utf-8", "replace"),
            "logprob": _finite(likely.logprob),
            "bytes": list(piece),
        }

    def _piece(self, token: int) -> bytes:
        return self._model.vocabulary.pieces[token]


def whole_choice(
    form: Form, index: int, text: str, logprobs: dict[str, Any] | None, end: Finished
) -> dict[str, Any]:
    """A finished reply as one entry of `choices`."""
    choice: dict[str, Any] = {"index": index, "logprobs": logprobs, "finish_reason": end.reason.value}
    if form.chat:
        choice["message"] = {"role": "assistant", "content": text, "refusal": None}
    else:
        choice["text"] = text
    return choice


def chunk_choice(
    form: Form,
    index: int,
    text: str,
    *,
    first: bool,
    logprobs: dict[str, Any] | None = None,
    reason: str | None = None,
) -> dict[str, Any]:
    """What one stream chunk adds to reply `index`. The role comes with the first text of a chat."""
    choice: dict[str, Any] = {"index": index, "logprobs": logprobs, "finish_reason": reason}
    if not form.chat:
        choice["text"] = text
        return choice
    delta: dict[str, Any] = {"role": "assistant"} if first else {}
    if text or first:
        delta["content"] = text
    choice["delta"] = delta
    return choice


def _finite(logprob: float) -> float:
    return max(logprob, _LEAST_LOGPROB)
