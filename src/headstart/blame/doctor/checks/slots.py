"""Whether a short request pushes a long conversation out."""

from __future__ import annotations

from collections.abc import Iterator

from headstart.blame.doctor.facts import Complaint, Facts, Severity, complain
from headstart.blame.finding import Fix


def check(facts: Facts) -> Iterator[Complaint]:
    for server in facts.servers:
        if server.kind != "llama-server" or server.slots is None:
            continue
        if server.slots == 1 and server.cache_mib == 0:
            yield complain(
                Severity.WARNING,
                server.name,
                "SIDE_REQUEST_EVICTED",
                "one slot, and no cache in memory",
                "any other request, a title for instance, makes the conversation be read again",
                fix=Fix("two slots of their own context, and the cache on", "-np 2 --cache-ram 8192"),
            )
        elif server.slots > 1 and (server.recurrent or server.window_tokens):
            yield complain(
                Severity.NOTE,
                server.name,
                "SERVER_GAP",
                f"checkpoints belong to one of {server.slots} slots",
                "a conversation that moves to another slot finds no place to resume",
                fix=Fix("one slot an agent, named in its requests as id_slot, or a single one", "-np 1"),
            )
