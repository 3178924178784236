"""Sliding windows and recurrent layers under settings that defeat reuse."""

from __future__ import annotations

from collections.abc import Iterator

from headstart.blame.doctor.facts import Complaint, Facts, ServerFacts, Severity, complain
from headstart.blame.finding import Fix


def check(facts: Facts) -> Iterator[Complaint]:
    for server in facts.servers:
        hybrid = server.recurrent is True
        windows = bool(server.window_tokens)
        if server.kind == "llama-server" and windows and not hybrid and "--swa-full" not in server.flags:
            yield _window(server)
        if (
            server.kind == "llama-server"
            and (windows or hybrid)
            and server.flags.get("--cache-reuse", "0") != "0"
        ):
            yield _shift(server)
        if server.kind == "mlx-lm" and (windows or hybrid):
            yield _cannot_cut(server)


def _window(server: ServerFacts) -> Complaint:
    return complain(
        Severity.WARNING,
        server.name,
        "SERVER_GAP",
        f"the model has sliding windows of {server.window_tokens:,} tokens and drops what lies behind",
        "a prompt that is edited further back than that is read again from a checkpoint, or whole",
        fix=Fix("keep all cells, if there is memory for them", "--swa-full"),
    )


def _shift(server: ServerFacts) -> Complaint:
    return complain(
        Severity.NOTE,
        server.name,
        "SETTING_WITHOUT_EFFECT",
        "--cache-reuse does nothing for this model: its state cannot be shifted",
        "nothing is lost by it, nothing is gained either",
        fix=Fix("leave it out"),
    )


def _cannot_cut(server: ServerFacts) -> Complaint:
    return complain(
        Severity.WARNING,
        server.name,
        "SERVER_NEVER_HITS",
        "mlx_lm.server cannot cut the cache of a model with sliding windows or recurrent layers",
        "a prompt that does not begin with all of the last one is read whole, without a word",
        fix=Fix("serve this model with a server that can", "headstart serve --model MODEL"),
    )
