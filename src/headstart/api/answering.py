"""From a request that is parsed to its HTTP answer, whole or streamed, the same for every dialect."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from typing import Any

from fastapi import Response
from fastapi.responses import JSONResponse

from headstart.api.generation import ClientGoneError, Generation, Reply
from headstart.api.openai_errors import GONE
from headstart.api.sse import EVENTS, EventStream
from headstart.api.work import Work

__all__ = ["answered"]

EARLY_FAILURE_S = 1.0
"""How long a stream's headers wait, so that what fails at once is answered with its HTTP status."""

Stream = Callable[[Sequence[Reply]], AsyncGenerator[bytes, None]]


async def answered(
    generation: Generation,
    work: Work,
    stream: Stream,
    whole: Callable[[], Awaitable[dict[str, Any]]],
    headers: Mapping[str, str],
    *,
    media_type: str = EVENTS,
) -> Response:
    """Queues the work and answers. `stream` is given the news that came before headers went out. Raises
    HeadstartError where the work is refused, or fails before there is anything to send."""
    try:
        generation.submit(work.requests)
        if work.stream:
            ready = await generation.news(EARLY_FAILURE_S)
            response: Response = EventStream(stream(ready), generation.close, media_type)
            response.headers.update(headers)
            return response
        reply = await whole()
    except ClientGoneError:
        generation.close()
        return Response(status_code=GONE)
    except BaseException:
        generation.close()
        raise
    generation.close()
    return JSONResponse(reply, headers=dict(headers))
