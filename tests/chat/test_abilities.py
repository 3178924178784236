"""What a chat template is said to be able to do."""

from __future__ import annotations

import hashlib

import pytest

from headstart.chat.abilities import abilities

PLAIN = "{% for message in messages %}{{ message.role }}: {{ message.content }}\n{% endfor %}"


def test_a_plain_template_can_nothing_more() -> None:
    found = abilities(PLAIN)
    assert (found.problem, found.tools, found.thinking, found.switches) == (None, False, False, ())
    assert found.digest == hashlib.sha256(PLAIN.encode()).hexdigest()


@pytest.mark.parametrize(
    "tools",
    [
        "{% if tools %}{{ tools | tojson }}{% endif %}",
        "{% for tool in tools %}{{ tool.function.name }}{% endfor %}",
    ],
)
def test_tools_are_those_that_it_writes(tools: str) -> None:
    assert abilities(tools + PLAIN).tools
    assert not abilities(tools.replace("tools", "toys") + PLAIN).tools


@pytest.mark.parametrize(
    ("more", "thinking", "switches"),
    [
        ("{% if enable_thinking %}<think>{% endif %}", True, ("enable_thinking",)),
        ("{% generation %}{{ reasoning_effort }}{% endgeneration %}", True, ("reasoning_effort",)),
        ("{% for m in messages %}{{ m.reasoning_content }}{% break %}{% endfor %}", True, ()),
        ("{% set enable_thinking = 1 %}{{ enable_thinking }}", False, ()),
        ("{# enable_thinking #}", False, ()),
    ],
)
def test_thinking_and_what_steers_it(more: str, thinking: bool, switches: tuple[str, ...]) -> None:
    found = abilities(more + PLAIN)
    assert (found.problem, found.thinking, found.switches) == (None, thinking, switches)


def test_a_template_that_does_not_compile_is_said_to() -> None:
    found = abilities("{% for %}")
    assert found.problem is not None
    assert found.problem.startswith("the chat template cannot be compiled: line 1")
    assert not found.tools


def test_a_template_that_refuses_everything() -> None:
    found = abilities("{{ raise_exception('no') }}{{ tools }}")
    assert (found.problem, found.tools) == (None, False)
