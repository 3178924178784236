"""What may take long runs on a thread, whatever dialect asks for it."""

from __future__ import annotations

import asyncio
import threading

import pytest

from headstart.api.offload import offload


@pytest.mark.parametrize(
    ("body", "inline"),
    [
        (b'{"messages": []}', True),
        (b'{"messages": ["' + b"x" * 5000 + b'"]}', False),
        (b'{"response_format": {"type": "json_object"}}', False),
        (b'{"text": {"format": {"type": "json_object"}}}', False),
        (b'{"format": "json"}', False),
        (b'{"tool_choice": {"type": "any"}}', False),
    ],
)
def test_large_bodies_and_constraints_leave_the_event_loop(body: bytes, inline: bool) -> None:
    async def ask() -> bool:
        return await offload(body, threading.get_ident) == threading.get_ident()

    assert asyncio.run(ask()) is inline
