"""A prompt that ends inside the last message, so that the reply goes on with it.

Templates end a message before they ask for a reply. So the last one is rendered with a mark behind its text,
and the prompt is what stands before the mark: however a template writes, that is where the text ends.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from headstart.chat.messages import Message
from headstart.chat.template import ChatTemplate
from headstart.errors import RequestError

__all__ = ["render_continued"]

_MARK = "\u2042headstart\u2042"


def render_continued(
    template: ChatTemplate,
    messages: Sequence[Message],
    *,
    tools: Sequence[Mapping[str, Any]] | None = None,
    kwargs: Mapping[str, Any] | None = None,
) -> str:
    """The prompt of `messages` up to the end of the last one's text, which must not be empty.

    Raises RequestError(400) where the template refuses the messages, or does not write that text as it is.
    """
    last = messages[-1]
    text, marked = _marked(last["content"])
    rendered = template.render(
        [*messages[:-1], {**last, "content": marked}],
        tools=tools,
        add_generation_prompt=False,
        **(kwargs or {}),
    )
    prompt, mark, _ = rendered.rpartition(_MARK)
    if not mark or not prompt.endswith(text.strip()):
        raise RequestError(
            "this model's chat template does not write the last assistant message as it was sent, so no "
            "reply can go on with it; end the conversation with a user message",
            param="messages",
        )
    return prompt


def _marked(content: Any) -> tuple[str, Any]:
    """The text that ends a content, and the content with the mark behind it."""
    if isinstance(content, str):
        return content, content + _MARK
    last = content[-1]
    return last["text"], [*content[:-1], {**last, "text": last["text"] + _MARK}]
