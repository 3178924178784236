"""The prompt as a turn should have been sent back: what was asked and what the model then said."""

from __future__ import annotations

import json
from dataclasses import replace

from headstart.blame.bodies.parts import as_json
from headstart.blame.exchange import Dialect, Reply, ToolCall
from headstart.blame.prompt import Kind, Piece, Prompt

_RAW = (Dialect.OPENAI_COMPLETIONS, Dialect.OLLAMA_GENERATE)
# Calls come back as objects there, so only what the object says can be compared.
_OBJECTS = (Dialect.ANTHROPIC, Dialect.OLLAMA_CHAT)


def as_generated(prompt: Prompt, reply: Reply) -> Prompt:
    """`prompt` with the assistant turn that was streamed behind it; as it is where nothing was said."""
    if prompt.dialect in _RAW:
        return _with_text(prompt, reply.text)
    message = max((piece.message for piece in prompt.pieces if piece.message is not None), default=-1) + 1
    said: list[Piece] = []
    if reply.thinking:
        said.append(Piece(Kind.THINKING, "reply.thinking", reply.thinking, "assistant", message))
    if reply.text.strip():
        said.append(Piece(Kind.TEXT, "reply.text", reply.text, "assistant", message))
    for index, call in enumerate(reply.calls):
        text = _arguments(call, prompt.dialect)
        path = f"reply.calls[{index}].arguments"
        said.append(Piece(Kind.CALL, path, text, "assistant", message, call.name, call.id))
    return replace(prompt, pieces=(*prompt.pieces, *said))


def replayed(before: Prompt, after: Prompt) -> bool:
    """Whether `after` goes on with an assistant turn where `before` ended."""
    if before.dialect in _RAW:
        return True
    count = len(before.pieces)
    return len(after.pieces) > count and after.pieces[count].role == "assistant"


def _with_text(prompt: Prompt, text: str) -> Prompt:
    if not text or not prompt.pieces:
        return prompt
    last = prompt.pieces[-1]
    return replace(prompt, pieces=(*prompt.pieces[:-1], replace(last, text=last.text + text)))


def _arguments(call: ToolCall, dialect: Dialect) -> str:
    text = call.arguments or "{}"
    if dialect not in _OBJECTS:
        return text
    try:
        return as_json(json.loads(text))
    except ValueError:
        return call.arguments
