"""The JSON of OpenAI's replies: whole completions, stream chunks, log-probabilities."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from headstart.chat.replies.events import ArgumentsDelta, CallEnd, CallStart, Event, TextDelta, ThinkingDelta
from headstart.serving.models import ServedModel
from headstart.serving.request import Delta, Finished, FinishReason, TokenLogprob

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


def reason_of(end: Finished, *, called: bool) -> str:
    """OpenAI's word for why a reply ended."""
    return "tool_calls" if called and end.reason is FinishReason.STOP else end.reason.value


def whole_choice(
    form: Form, index: int, events: Sequence[Event], logprobs: dict[str, Any] | None, end: Finished
) -> dict[str, Any]:
    """A finished reply as one entry of `choices`."""
    text = "".join(event.text for event in events if isinstance(event, TextDelta))
    calls = calls_of(events)
    reason = reason_of(end, called=bool(calls))
    choice: dict[str, Any] = {"index": index, "logprobs": logprobs, "finish_reason": reason}
    if not form.chat:
        return {**choice, "text": text}
    message: dict[str, Any] = {"role": "assistant", "content": text, "refusal": None}
    thinking = "".join(event.text for event in events if isinstance(event, ThinkingDelta))
    if thinking:
        message["reasoning_content"] = thinking
    if calls:
        message |= {"content": text or None, "tool_calls": calls}
    return {**choice, "message": message}


def calls_of(events: Sequence[Event]) -> list[dict[str, Any]]:
    """The calls that are complete."""
    calls: dict[int, dict[str, Any]] = {}
    whole: set[int] = set()
    for event in events:
        if isinstance(event, CallStart):
            function = {"name": event.name, "arguments": ""}
            calls[event.index] = {"id": event.id, "type": "function", "function": function}
        elif isinstance(event, ArgumentsDelta):
            calls[event.index]["function"]["arguments"] += event.text
        elif isinstance(event, CallEnd):
            whole.add(event.index)
    return [call for index, call in calls.items() if index in whole]


def delta_of(event: Event) -> dict[str, Any] | None:
    """What a stream's chunk says of an event; None where that is nothing."""
    match event:
        case TextDelta():
            return {"content": event.text}
        case ThinkingDelta():
            return {"reasoning_content": event.text}
        case CallStart():
            function = {"name": event.name, "arguments": ""}
            return _call_delta(event.index, {"id": event.id, "type": "function", "function": function})
        case ArgumentsDelta():
            return _call_delta(event.index, {"function": {"arguments": event.text}})
        case CallEnd():
            return None


def _call_delta(index: int, call: dict[str, Any]) -> dict[str, Any]:
    return {"tool_calls": [{"index": index, **call}]}


def chunk_choice(
    form: Form,
    index: int,
    delta: Mapping[str, Any],
    *,
    first: bool,
    logprobs: dict[str, Any] | None = None,
    reason: str | None = None,
) -> dict[str, Any]:
    """What one stream chunk adds to reply `index`. The role comes with the first of a chat."""
    choice: dict[str, Any] = {"index": index, "logprobs": logprobs, "finish_reason": reason}
    if not form.chat:
        return {**choice, "text": delta.get("content", "")}
    return {**choice, "delta": {"role": "assistant", "content": "", **delta} if first else dict(delta)}


def _finite(logprob: float) -> float:
    return max(logprob, _LEAST_LOGPROB)
