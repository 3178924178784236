"""Work of a request that would hold up other requests goes to a thread."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from starlette.concurrency import run_in_threadpool

__all__ = ["offload"]

_INLINE_BYTES = 4096
"""Bodies up to this size are parsed and tokenized on the event loop; larger ones on a thread."""
_CONSTRAINING = (b"response_format", b'"format"', b'"tool_choice"')
"""Fields of any dialect for which a constraint may be compiled."""
Answer = TypeVar("Answer")


async def offload(body: bytes, work: Callable[[], Answer]) -> Answer:
    """Runs `work` here where it is small, on a worker thread where it would hold up other requests.

    Compiling a constraint may take a second, whatever the size of the body.
    """
    small = len(body) <= _INLINE_BYTES and not any(field in body for field in _CONSTRAINING)
    return work() if small else await run_in_threadpool(work)
