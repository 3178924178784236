"""Work of a request that would hold up other requests goes to a thread."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from starlette.concurrency import run_in_threadpool

__all__ = ["offload"]

_INLINE_BYTES = 4096
"""Bodies up to this size are parsed and tokenized on the event loop; larger ones on a thread."""
Answer = TypeVar("Answer")


async def offload(body: bytes, work: Callable[[], Answer]) -> Answer:
    """Runs `work` here where it is small, on a worker thread where it would hold up other requests.

    Compiling a constraint may take a second, whatever the size of the body.
    """
    small = len(body) <= _INLINE_BYTES and b"response_format" not in body
    return work() if small else await run_in_threadpool(work)
