"""How long a prompt is and how much of it was taken from a cache, by whoever tells."""

from __future__ import annotations

from headstart.accept.exchange import Ask, Exchange
from headstart.accept.hits import metered_reuse
from headstart.accept.session import Session


def restored(exchange: Exchange) -> int | None:
    """Prompt tokens reused: by the reply, else by the server's counters; None where neither says.

    Whether the two agree is for the gate honesty.
    """
    told = exchange.reused if exchange.reused is not None else metered_reuse(exchange)
    return None if told is None else max(0, told)


def prompt_length(session: Session, ask: Ask) -> int | None:
    """Tokens of a prompt by the server's own tokenizer, None where it has none to ask."""
    model = session.options.model or session.facts.model
    known = session.server.tokens(session.http, ask, session.wire.name, model)
    return None if known is None else len(known)
