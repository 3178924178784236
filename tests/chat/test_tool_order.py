"""Tools in the order in which the same set was first seen."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from headstart.chat.tool_order import ToolOrder


def tool(name: str, **more: Any) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, **more}}


A, B, C = tool("a"), tool("b"), tool("c")


def test_another_order_becomes_the_first_one() -> None:
    order = ToolOrder()
    assert order.arranged([A, B, C], "me") == ([A, B, C], False)
    assert order.arranged([C, A, B], "me") == ([A, B, C], True)
    assert order.arranged([A, B], "me") == ([A, B], False), "another set"
    assert order.arranged([B, A], "you") == ([B, A], False), "another key"


def test_a_changed_tool_is_another_one() -> None:
    order = ToolOrder()
    order.arranged([A, B], "")
    changed = tool("b", description="grew")
    assert order.arranged([changed, A], "") == ([changed, A], False)
    turned = {"function": {"name": "b"}, "type": "function"}
    assert order.arranged([turned, A], "") == ([turned, A], False), "keys in another order are rendered so"


def test_what_it_remembers_is_bounded() -> None:
    order = ToolOrder(most=2)
    for name in "abcdef":
        order.arranged([tool(name), A], "")
    assert len(order._seen) == 2
    assert order.arranged([A, tool("b")], "") == ([A, tool("b")], False)


@given(st.lists(st.sampled_from([A, B, C, tool("d")]), max_size=6), st.randoms())
def test_nothing_is_added_or_lost(tools: list[dict[str, Any]], source: Any) -> None:
    order = ToolOrder()
    first, _ = order.arranged(tools, "")
    other = list(tools)
    source.shuffle(other)
    again, moved = order.arranged(other, "")
    assert list(again) == list(first) == tools
    assert moved == (other != tools)
