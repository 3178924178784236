"""Whether checkpoints reach over the context, and are close enough to each other."""

from __future__ import annotations

from collections.abc import Iterator

from headstart.blame.doctor.facts import Complaint, Facts, ServerFacts, Severity, complain
from headstart.blame.finding import Fix

FAR_SHARE = 0.1
LEAST_STEP = 256


def check(facts: Facts) -> Iterator[Complaint]:
    for server in facts.servers:
        if server.kind != "llama-server" or not (server.recurrent or server.window_tokens):
            continue
        if "--swa-full" in server.flags and not server.recurrent:
            continue
        count, step, context = server.checkpoints, server.checkpoint_step, server.context_tokens
        if count == 0:
            yield _none(server)
        elif count and step and context:
            yield from _reach(server, count, step, context)


def _none(server: ServerFacts) -> Complaint:
    return complain(
        Severity.WARNING,
        server.name,
        "SERVER_NEVER_HITS",
        "checkpoints are switched off, and this model can resume nowhere else",
        "every prompt that is not just longer than the last one is read whole",
        fix=Fix("switch them on", "--ctx-checkpoints 32"),
    )


def _reach(server: ServerFacts, count: int, step: int, context: int) -> Iterator[Complaint]:
    if count * step < context:
        yield complain(
            Severity.WARNING,
            server.name,
            "SERVER_GAP",
            f"{count} checkpoints {step:,} tokens apart reach over {count * step:,} of {context:,} tokens",
            "the oldest are dropped: an edit near the beginning of a long prompt reads all of it again",
            fix=_fix(context),
        )
    elif step > FAR_SHARE * context:
        yield complain(
            Severity.WARNING,
            server.name,
            "SERVER_GAP",
            f"checkpoints are at least {step:,} tokens apart, in a context of {context:,}",
            f"an edit between two of them reads up to {min(step, context):,} tokens again",
            fix=_fix(context),
        )


def _fix(context: int) -> Fix:
    step = LEAST_STEP
    while step * 64 < context:
        step *= 2
    return Fix(
        "more checkpoints, closer together (each takes memory)",
        f"--checkpoint-min-step {step} --ctx-checkpoints {-(-context // step)}",
    )
