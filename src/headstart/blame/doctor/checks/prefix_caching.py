"""Servers whose prefix cache is off."""

from __future__ import annotations

from collections.abc import Iterator

from headstart.blame.doctor.facts import Complaint, Facts, Severity, complain
from headstart.blame.finding import Fix

FLAGS = {"vllm": "--enable-prefix-caching", "llama-server": "--cache-prompt", "headstart": "--cache"}


def check(facts: Facts) -> Iterator[Complaint]:
    for server in facts.servers:
        if server.prefix_caching is False:
            yield complain(
                Severity.WARNING,
                server.name,
                "SERVER_NEVER_HITS",
                "its prefix cache is switched off",
                "every turn of a conversation is read from its first token",
                fix=Fix("switch it on", FLAGS.get(server.kind, "")),
            )
