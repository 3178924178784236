"""How much of a prompt was taken from a cache, by whoever tells."""

from __future__ import annotations

from headstart.accept.exchange import Exchange


def restored(exchange: Exchange) -> int | None:
    """Prompt tokens reused: by the reply, else by the server's counters; None where neither says.

    Whether the two agree is for the gate honesty.
    """
    if exchange.reused is not None:
        return exchange.reused
    counters = exchange.counters
    if counters is None:
        return None
    if counters.reused_tokens is not None and counters.reused_tokens >= 0:
        return int(counters.reused_tokens)
    if counters.read_tokens is not None and exchange.prompt_tokens is not None:
        return max(0, exchange.prompt_tokens - int(counters.read_tokens))
    return None
