"""What a chat template can do, found by rendering a short conversation and by what it asks for."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from headstart.chat.template import ChatTemplate
from headstart.errors import ModelError, RequestError

__all__ = ["Abilities", "abilities"]

SWITCHES = ("enable_thinking", "thinking", "reasoning_effort", "thinking_budget")
"""Arguments by which templates of several families are told whether, or how much, to think."""
MARKS = ("<think>", "reasoning_content", "<|channel|>analysis", "<|channel>thought")
_TOOL = "headstartprobe"


@dataclass(frozen=True)
class Abilities:
    """`digest`: SHA-256 of the template's text. `problem`: why it cannot be compiled; None where it can.
    `tools`: it writes the tools it is given. `thinking`: it has a place for thoughts. `switches`: the
    chat_template_kwargs that thinking is steered by."""

    digest: str
    problem: str | None
    tools: bool
    thinking: bool
    switches: tuple[str, ...]


def abilities(source: str, *, bos: str = "", eos: str = "") -> Abilities:
    """What the template `source` can do; `bos` and `eos` as for ChatTemplate."""
    digest = hashlib.sha256(source.encode("utf-8", "surrogatepass")).hexdigest()
    try:
        template = ChatTemplate(source, bos=bos, eos=eos)
    except ModelError as error:
        return Abilities(digest, str(error), tools=False, thinking=False, switches=())
    asked = template.asks_for()
    switches = tuple(name for name in SWITCHES if name in asked)
    thinking = bool(switches) or any(mark in source for mark in MARKS)
    return Abilities(digest, None, _writes_tools(template), thinking, switches)


def _writes_tools(template: ChatTemplate) -> bool:
    tool = {
        "type": "function",
        "function": {
            "name": _TOOL,
            "description": _TOOL,
            "parameters": {"type": "object", "properties": {}, "required": []},
        },
    }
    try:
        return _TOOL in template.render([{"role": "user", "content": "hello"}], tools=[tool])
    except RequestError:
        return False
