"""Whether an agent's first request fits into the context at all."""

from __future__ import annotations

from collections.abc import Iterator

from headstart.blame.doctor.facts import (
    AGENT_TOKENS,
    ROOM_TOKENS,
    Complaint,
    Facts,
    ServerFacts,
    Severity,
    complain,
)
from headstart.blame.finding import Fix

TIERS = "4,096 tokens below 23 GiB of GPU memory, 32,768 below 47 GiB, 262,144 above"


def check(facts: Facts) -> Iterator[Complaint]:
    for server in facts.servers:
        if server.context_tokens is not None and server.context_tokens < ROOM_TOKENS:
            yield _small(server, server.context_tokens)
        elif server.kind == "ollama" and server.context_tokens is None:
            yield from _default(server, facts)


def _small(server: ServerFacts, tokens: int) -> Complaint:
    too_small = tokens <= AGENT_TOKENS
    return complain(
        Severity.ERROR if too_small else Severity.WARNING,
        server.name,
        "CONTEXT_TOO_SMALL",
        f"a conversation has {tokens:,} tokens"
        + (f", an agent's first request takes about {AGENT_TOKENS:,}" if too_small else ""),
        "prompts are cut or refused; a cut one begins elsewhere, so nothing of it is reused"
        if too_small
        else "an agent compacts or is cut after a few files, and reads everything again",
        fix=_fix(server),
    )


def _fix(server: ServerFacts) -> Fix:
    most = server.trained_tokens
    wanted = ROOM_TOKENS if most is None else min(ROOM_TOKENS, most)
    if most is not None and most <= AGENT_TOKENS:
        return Fix(f"this model knows no more than {most:,} tokens: take another one for agents")
    slots = server.slots or 1
    commands = {
        "ollama": f"OLLAMA_CONTEXT_LENGTH={wanted} ollama serve",
        "llama-server": f"llama-server -c {wanted * slots}" + (f" -np {slots}" if slots > 1 else ""),
        "vllm": f"vllm serve --max-model-len {wanted}",
        "headstart": f"headstart serve --ctx-size {wanted}",
        "lmstudio": f"lms load MODEL --context-length {wanted}",
    }
    return Fix(f"give it a context of {wanted:,} tokens", commands.get(server.kind, ""))


def _default(server: ServerFacts, facts: Facts) -> Iterator[Complaint]:
    if "OLLAMA_CONTEXT_LENGTH" in facts.variables:
        return
    yield complain(
        Severity.NOTE,
        server.name,
        "CONTEXT_BY_DEFAULT",
        f"no model is loaded; Ollama picks the context by GPU memory: {TIERS}",
        f"an agent's first request takes about {AGENT_TOKENS:,} tokens, more than the two smaller ones hold",
        fix=Fix("set it", f"OLLAMA_CONTEXT_LENGTH={ROOM_TOKENS} ollama serve"),
    )
