"""Whether a block is ever full: servers with blocks reuse whole ones only."""

from __future__ import annotations

from collections.abc import Iterator

from headstart.blame.doctor.facts import AGENT_TOKENS, Complaint, Facts, Severity, complain
from headstart.blame.finding import Fix

LARGE_SHARE = 0.05


def check(facts: Facts) -> Iterator[Complaint]:
    for server in facts.servers:
        block, context = server.block_tokens, server.context_tokens
        if block is None or server.kind == "headstart":
            continue
        if context is not None and block > context:
            yield complain(
                Severity.ERROR,
                server.name,
                "SERVER_NEVER_HITS",
                f"a block is {block:,} tokens, the context {context:,}: no block is ever full",
                "nothing is ever reused, and no line of its log says so",
                fix=Fix("give it a context of several blocks", f"--max-model-len {max(4 * block, 65536)}"),
            )
        elif block > LARGE_SHARE * AGENT_TOKENS:
            yield complain(
                Severity.WARNING,
                server.name,
                "SERVER_GAP",
                f"it resumes at multiples of {block:,} tokens only",
                f"up to {block - 1:,} tokens are read again at every turn",
                fix=Fix("take a model without recurrent layers, whose blocks are small, where that matters"),
            )
