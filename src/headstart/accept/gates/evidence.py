"""How much of a prompt was taken from a cache, by whoever tells."""

from __future__ import annotations

from headstart.accept.exchange import Exchange
from headstart.accept.hits import metered_reuse


def restored(exchange: Exchange) -> int | None:
    """Prompt tokens reused: by the reply, else by the server's counters; None where neither says.

    Whether the two agree is for the gate honesty.
    """
    told = exchange.reused if exchange.reused is not None else metered_reuse(exchange)
    return None if told is None else max(0, told)
