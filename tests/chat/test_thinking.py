from __future__ import annotations

import pytest

from headstart.chat.template import ChatTemplate
from headstart.chat.thinking import Thinking, opens_thinking, thinking_kwargs, thinking_of
from tests.chat.templates import ALTERNATING, CHATML

QWEN = """\
{%- set ns = namespace(last=0) %}
{%- for m in messages if m.role == 'user' %}{% set ns.last = loop.length and messages.index(m) %}{% endfor %}
{%- for m in messages %}{% if m.role == 'user' %}{% set ns.last = loop.index0 %}{% endif %}{% endfor %}
{%- for m in messages %}
<|{{ m.role }}|>
{%- if m.role == 'assistant' and m.reasoning_content and (loop.index0 > ns.last or KEEP) %}
<think>{{ m.reasoning_content }}</think>{% endif %}
{{- m.content }}{% for c in m.tool_calls or [] %}<tool_call>{{ c.function.name }}{% endfor %}
{%- endfor %}
{%- if add_generation_prompt %}<|assistant|>{% if enable_thinking is defined and not enable_thinking -%}
<think></think>{% else %}<think>
{% endif %}{% endif %}"""
QWEN = QWEN.replace(QWEN.splitlines()[1] + "\n", "")


def can(source: str) -> Thinking:
    return thinking_of(ChatTemplate(source, bos="", eos=""))


def test_a_template_that_thinks() -> None:
    drops = Thinking(shows=True, drops_earlier=True, switch=True, opens=True)
    assert can(QWEN.replace("KEEP", "false")) == drops


@pytest.mark.parametrize(
    ("keep", "found"),
    [
        ("preserve_thinking", ("preserve_thinking", True)),
        ("(clear_thinking is defined and not clear_thinking)", ("clear_thinking", False)),
    ],
)
def test_a_template_that_can_keep_thoughts(keep: str, found: tuple[str, bool]) -> None:
    able = can(QWEN.replace("KEEP", keep))
    assert able.keeping == found
    kwargs, warnings = thinking_kwargs(able, {}, preserve=True)
    assert kwargs == {found[0]: found[1]} and warnings == []


def test_a_template_that_keeps_all() -> None:
    assert not can(QWEN.replace("KEEP", "true")).drops_earlier


def test_a_template_without_thoughts() -> None:
    able = can(ALTERNATING)
    assert not (able.shows or able.switch or able.effort or able.opens)


def test_effort() -> None:
    able = can(CHATML + "{{ reasoning_effort }}")
    assert able.effort and thinking_kwargs(able, {}, effort="low") == ({"reasoning_effort": "low"}, [])


def test_wishes_a_template_cannot_meet_are_named() -> None:
    able = Thinking(drops_earlier=True)
    kwargs, warnings = thinking_kwargs(able, {"x": 1}, enable=False, effort="high", preserve=True)
    assert kwargs == {"x": 1}
    assert [w.partition(":")[0] for w in warnings] == [
        "reasoning_effort", "enable_thinking", "preserve_thinking"
    ]  # fmt: skip
    assert thinking_kwargs(Thinking(switch=True), {}, effort="none")[0] == {"enable_thinking": False}


def test_a_prompt_that_opens_the_thoughts() -> None:
    assert opens_thinking("<|im_start|>assistant\n<think>\n")
    assert not opens_thinking("<|im_start|>assistant\n<think>\n\n</think>\n\n")
