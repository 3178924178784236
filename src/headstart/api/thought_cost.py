"""What it costs that a template leaves the thoughts of earlier turns out of the prompt.

The thoughts were read, or generated, in the turn they belong to. Once they are left out, the prompt parts
there from what is stored, and all that stands behind them is read again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from headstart.chat.boundaries import Rendered
from headstart.chat.messages import Message
from headstart.chat.thinking import Thinking
from headstart.serving.models import ServedModel

__all__ = ["thoughts_note"]


def thoughts_note(
    model: ServedModel,
    messages: Sequence[Message],
    kwargs: Mapping[str, Any],
    rendered: Rendered,
    divergence: tuple[int, int | None],
) -> str | None:
    """What a report says of thoughts that were left out; None where there are none. `divergence`: its
    character in the rendered prompt, and the message that is in."""
    left_out = _left_out(model.thinking, messages, kwargs)
    if not left_out:
        return None
    last = max(index for index, message in enumerate(messages) if message.get("role") == "user")
    end, (start, inside) = rendered.message_starts[last], divergence
    tokens = 0
    if end is not None and inside in left_out and start < end:
        told = _to_turn_end(rendered.text[start:end], model.turn_ends)
        tokens = len(model.tokenize(told, special=True, add_bos=False))
    advice = (
        "--preserve-thinking on keeps them" if model.thinking.keeping else "this template cannot keep them"
    )
    return (
        f"thinking: the chat template leaves out the thoughts of {len(left_out)} earlier messages; "
        f"{tokens} tokens behind them were read again ({advice})"
    )


def _to_turn_end(text: str, turn_ends: Sequence[str]) -> str:
    """`text` without the beginning of a message that it ends with."""
    ends = [at + len(end) for end in turn_ends if (at := text.rfind(end)) >= 0]
    return text[: max(ends)] if ends else text


def _left_out(thinking: Thinking, messages: Sequence[Message], kwargs: Mapping[str, Any]) -> list[int]:
    """The messages whose thoughts the template does not show: those before the last of the user."""
    kept = thinking.keeping is not None and kwargs.get(thinking.keeping[0]) is thinking.keeping[1]
    users = [index for index, message in enumerate(messages) if message.get("role") == "user"]
    if not thinking.drops_earlier or kept or not users:
        return []
    return [index for index, one in enumerate(messages[: users[-1]]) if one.get("reasoning_content")]
