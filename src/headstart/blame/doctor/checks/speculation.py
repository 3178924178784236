"""Speculative decoding on a model whose state cannot be taken back."""

from __future__ import annotations

from collections.abc import Iterator

from headstart.blame.doctor.facts import Complaint, Facts, Severity, complain
from headstart.blame.finding import Fix

FLAGS = {"llama-server": "leave out --model-draft and --spec-type", "vllm": "leave out --speculative-config"}


def check(facts: Facts) -> Iterator[Complaint]:
    for server in facts.servers:
        if server.speculative and server.recurrent and server.kind != "headstart":
            yield complain(
                Severity.WARNING,
                server.name,
                "SPECULATION_ON_HYBRID",
                "it guesses ahead on a model with recurrent layers, and keeps prefixes too",
                "wrong guesses cannot be taken back without a checkpoint: prompts are read again, and "
                "replies after a reuse have been seen to differ",
                fix=Fix("do without one of the two", FLAGS.get(server.kind, "")),
            )
