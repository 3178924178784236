"""A request as the prompt that its model reads: rendered by the model's own template, and as tokens.

What is not known here (the template, the tokenizer) is given: this part of the package loads no model.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any, Protocol

from headstart.blame.exchange import Dialect, Reply
from headstart.blame.prompt import Kind, Piece, Prompt
from headstart.errors import RequestError

__all__ = ["Reader", "Renders", "common_chars", "common_tokens", "messages_of", "tools_of", "with_reply"]

Message = dict[str, Any]


class Renders(Protocol):
    """A chat template: `ChatTemplate`, or a server's."""

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = True,
        **kwargs: Any,
    ) -> str: ...


@dataclass(frozen=True)
class Reader:
    """How a model reads: its template, and its tokenizer where that is known."""

    template: Renders
    tokenize: Callable[[str], Sequence[int]] | None = None

    def text(self, prompt: Prompt, *, to_generate: bool = True) -> str:
        """The prompt as text, ready for a reply or not. Raises RequestError where the template refuses it."""
        switches = prompt.options.get("chat_template_kwargs")
        kwargs = dict(switches) if isinstance(switches, Mapping) else {}
        return self.template.render(
            messages_of(prompt), tools=tools_of(prompt) or None, add_generation_prompt=to_generate, **kwargs
        )

    def tokens(self, text: str) -> Sequence[int] | None:
        return None if self.tokenize is None else self.tokenize(text)


def with_reply(prompt: Prompt, reply: Reply) -> Prompt:
    """`prompt` and, as a further message, what was generated for it, to the byte."""
    number = 1 + max((piece.message for piece in prompt.pieces if piece.message is not None), default=-1)
    path = f"messages[{number}]"
    said = [Piece(Kind.THINKING, path, reply.thinking, "assistant", number)] if reply.thinking else []
    if reply.text or not reply.calls:
        said.append(Piece(Kind.TEXT, path, reply.text, "assistant", number))
    said += [
        Piece(Kind.CALL, path, call.arguments, "assistant", number, name=call.name, id=call.id)
        for call in reply.calls
    ]
    return replace(prompt, pieces=(*prompt.pieces, *said))


def messages_of(prompt: Prompt) -> list[Message]:
    """The pieces as messages in OpenAI's form, which templates are written for."""
    pieces = [piece for piece in prompt.pieces if piece.kind is not Kind.TOOL]
    messages: list[Message] = []
    items = prompt.dialect is Dialect.OPENAI_RESPONSES
    for number, group in groupby(pieces, key=_turn_of if items else _message_of):
        messages += _messages(list(group), own_field=number is None)
    return messages


def _message_of(piece: Piece) -> int | None:
    return piece.message


def _turn_of(piece: Piece) -> int | None:
    """Of items, which hold a text, a thought or a call each, all that the model said in a row are one."""
    return -1 if piece.role == "assistant" else piece.message


def _messages(pieces: Sequence[Piece], *, own_field: bool) -> list[Message]:
    """Those of one message of the body: results are messages of their own, before what else it says."""
    results = [
        {"role": "tool", "tool_call_id": piece.id, "content": piece.text}
        for piece in pieces
        if piece.kind is Kind.RESULT
    ]
    rest = [piece for piece in pieces if piece.kind is not Kind.RESULT]
    if not rest:
        return results
    role = "system" if own_field else rest[0].role
    message: Message = {"role": role, "content": "\n".join(_texts(rest))}
    thinking = "".join(piece.text for piece in rest if piece.kind is Kind.THINKING)
    if thinking:
        message["reasoning_content"] = thinking
    calls = [_call(piece) for piece in rest if piece.kind is Kind.CALL]
    if calls:
        message["tool_calls"] = calls
    return [*results, message]


def _texts(pieces: Iterable[Piece]) -> list[str]:
    shown = (Kind.TEXT, Kind.SYSTEM, Kind.MEDIA)
    return [piece.text for piece in pieces if piece.kind in shown and piece.text]


def _call(piece: Piece) -> Message:
    return {
        "id": piece.id,
        "type": "function",
        "function": {"name": piece.name, "arguments": piece.text or "{}"},
    }


def tools_of(prompt: Prompt) -> list[Message]:
    """Tools in OpenAI's form, whatever dialect they came in."""
    return [_tool(piece) for piece in prompt.pieces if piece.kind is Kind.TOOL]


def _tool(piece: Piece) -> Message:
    try:
        tool = json.loads(piece.text)
    except ValueError:
        tool = {}
    if not isinstance(tool, dict):
        tool = {}
    if isinstance(tool.get("function"), dict):
        return tool
    schema = tool.get("input_schema", tool.get("parameters", {}))
    function = {
        "name": piece.name,
        "description": tool.get("description", ""),
        "parameters": schema,
    }
    return {"type": "function", "function": function}


def common_chars(left: str, right: str) -> int:
    """How many characters two texts begin with in common. By halves: comparing slices is fast."""
    low, high = 0, min(len(left), len(right))
    if left[:high] == right[:high]:
        return high
    while low + 1 < high:
        middle = (low + high) // 2
        if left[low:middle] == right[low:middle]:
            low = middle
        else:
            high = middle
    return low


def common_tokens(left: Sequence[int], right: Sequence[int]) -> int:
    count = 0
    for one, other in zip(left, right, strict=False):
        if one != other:
            break
        count += 1
    return count


def rendered(reader: Reader, prompt: Prompt, *, to_generate: bool = True) -> tuple[str | None, str]:
    """The prompt as text and "", or None and why there is none."""
    try:
        return reader.text(prompt, to_generate=to_generate), ""
    except RequestError as error:
        return None, str(error)
