"""Whether the cache in memory holds the conversations that are to stay warm."""

from __future__ import annotations

from collections.abc import Iterator

from headstart.blame.doctor.facts import MIB, ROOM_TOKENS, Complaint, Facts, ServerFacts, Severity, complain
from headstart.blame.finding import Fix

FEW = 2


def check(facts: Facts) -> Iterator[Complaint]:
    for server in facts.servers:
        if server.kind not in ("llama-server", "ollama"):
            continue
        if server.cache_mib == 0:
            yield _off(server)
        elif server.cache_mib and server.cache_mib > 0:
            yield from _small(server, server.cache_mib, facts)


def _off(server: ServerFacts) -> Complaint:
    return complain(
        Severity.WARNING,
        server.name,
        "EVICTED",
        "its cache in memory is switched off: a slot is all there is",
        "a title or summary request throws the conversation out, which is then read again",
        fix=Fix("switch it on", "--cache-ram 8192"),
    )


def _small(server: ServerFacts, budget_mib: int, facts: Facts) -> Iterator[Complaint]:
    each = _conversation_mib(server)
    if each is None:
        return
    warm = budget_mib // each
    if warm < FEW:
        yield complain(
            Severity.WARNING,
            server.name,
            "EVICTED",
            f"a conversation of {_length(server):,} tokens takes about {each:,} MiB, the cache holds "
            f"{budget_mib:,} MiB: {warm} of them",
            "with two conversations at a time each throws the other out",
            fix=Fix("give it more", f"--cache-ram {4 * each}")
            if server.kind == "llama-server"
            else Fix("Ollama has no setting for it: keep to one conversation at a time, or use llama-server"),
        )


def _length(server: ServerFacts) -> int:
    return min(server.context_tokens or ROOM_TOKENS, ROOM_TOKENS)


def _conversation_mib(server: ServerFacts) -> int | None:
    if server.state_bytes is None:
        return None
    points = min(server.checkpoints or 0, 8) * (server.checkpoint_bytes or 0)
    return max(1, (server.state_bytes * _length(server) + points) // MIB)
