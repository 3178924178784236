"""What a chat template does about thinking, found by rendering small conversations with it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from headstart.chat.template import ChatTemplate
from headstart.errors import RequestError

__all__ = ["Thinking", "opens_thinking", "thinking_kwargs", "thinking_of"]

_MARK = "headstartthought"
_OPENINGS = ("<think>", "[THINK]", "<|channel>thought")
KEEPING: tuple[tuple[str, bool], ...] = (("preserve_thinking", True), ("clear_thinking", False))
"""Arguments, and the value that keeps earlier thoughts, by which templates are told to."""


@dataclass(frozen=True)
class Thinking:
    """`shows`: thoughts of the running turn are rendered. `drops_earlier`: those of turns before the last
    user message are not. `keeping`: the argument and value that keeps them, None without one.
    `switch`: enable_thinking changes the prompt. `effort`: reasoning_effort does. `opens`: the prompt
    ends inside the thoughts unless told otherwise."""

    shows: bool = False
    drops_earlier: bool = False
    keeping: tuple[str, bool] | None = None
    switch: bool = False
    effort: bool = False
    opens: bool = False


def thinking_of(template: ChatTemplate) -> Thinking:
    """What `template` does about thinking."""
    user: dict[str, Any] = {"role": "user", "content": "hello"}
    thought = {"role": "assistant", "content": "yes"}
    for field in ("reasoning_content", "reasoning", "thinking"):
        thought[field] = _MARK
    call = {"id": "call00000", "type": "function", "function": {"name": "f", "arguments": {}}}
    acting = {**thought, "content": "", "tool_calls": [call]}
    answered = {"role": "tool", "tool_call_id": "call00000", "name": "f", "content": "1"}
    running = _render(template, [user, acting, answered])
    if running is None or _MARK not in running:
        running = _render(template, [user, thought], add_generation_prompt=False) or ""
    earlier = _render(template, [user, thought, user])
    drops = earlier is not None and _MARK not in earlier
    plain = _render(template, [user]) or ""
    return Thinking(
        shows=_MARK in running or not drops,
        drops_earlier=drops,
        keeping=_keeping(template, [user, thought, user]) if drops else None,
        switch=_differ(template, [user], "enable_thinking", (True, False)),
        effort=_differ(template, [user], "reasoning_effort", ("low", "high")),
        opens=opens_thinking(plain),
    )


def opens_thinking(prompt: str) -> bool:
    """Whether a reply to the rendered `prompt` begins inside the thoughts."""
    return prompt.rstrip().endswith(_OPENINGS)


def thinking_kwargs(
    can: Thinking,
    given: Mapping[str, Any],
    *,
    enable: bool | None = None,
    effort: str | None = None,
    preserve: bool | None = None,
) -> tuple[dict[str, Any], list[str]]:
    """The template's arguments for these wishes, and a sentence for each that changes nothing. What was
    `given` (chat_template_kwargs) comes first."""
    wanted: dict[str, Any] = {}
    warnings = []
    if effort == "none":
        enable, effort = False, None
    if effort is not None and can.effort:
        wanted["reasoning_effort"] = effort
    elif effort is not None:
        warnings.append("reasoning_effort: this model's template knows no effort; it was ignored")
    if enable is not None and can.switch:
        wanted["enable_thinking"] = enable
    elif enable is not None:
        warnings.append("enable_thinking: this model's template has no such switch; it was ignored")
    if preserve is not None and can.keeping is not None:
        wanted[can.keeping[0]] = can.keeping[1] is preserve
    elif preserve and can.drops_earlier:
        warnings.append(
            "preserve_thinking: this model's template drops earlier thoughts and cannot keep them"
        )
    return {**wanted, **given}, warnings


def _keeping(template: ChatTemplate, messages: list[dict[str, Any]]) -> tuple[str, bool] | None:
    for name, value in KEEPING:
        if _MARK in (_render(template, messages, **{name: value}) or ""):
            return name, value
    return None


def _differ(
    template: ChatTemplate, messages: list[dict[str, Any]], name: str, values: tuple[Any, Any]
) -> bool:
    first, second = (_render(template, messages, **{name: value}) for value in values)
    return first != second


def _render(template: ChatTemplate, messages: list[dict[str, Any]], **kwargs: Any) -> str | None:
    try:
        return template.render(messages, **kwargs)
    except RequestError:
        return None
