"""Titles and summaries that agents ask for beside the conversation."""

from __future__ import annotations

from collections.abc import Iterator

from headstart.blame.doctor.facts import Complaint, Facts, Severity, complain
from headstart.blame.finding import Culprit, Fix

CLAUDE = ("DISABLE_NON_ESSENTIAL_MODEL_CALLS", "CLAUDE_CODE_DISABLE_TERMINAL_TITLE")
COST = "on a server with one slot it pushes the conversation out, which is then read again"


def check(facts: Facts) -> Iterator[Complaint]:
    for agent in facts.agents:
        severity = Severity.WARNING if agent.local and _one_slot(facts) else Severity.NOTE
        if agent.name == "claude" and agent.settings.get(CLAUDE[0]) != "1":
            yield complain(
                severity,
                "Claude Code",
                "SIDE_REQUEST_EVICTED",
                f"{CLAUDE[0]} is not 1: it may ask for titles and summaries",
                COST,
                fix=Fix("switch them off", "export " + " ".join(f"{name}=1" for name in CLAUDE)),
                culprit=Culprit.CLIENT,
            )
        if agent.name == "opencode" and "small_model" not in agent.settings:
            yield complain(
                severity,
                "opencode",
                "SIDE_REQUEST_EVICTED",
                "no small_model is set: every session begins with a title request to the main model",
                COST,
                fix=Fix("send titles elsewhere, in opencode.json", '"small_model": "PROVIDER/OTHER-MODEL"'),
                culprit=Culprit.CLIENT,
            )


def _one_slot(facts: Facts) -> bool:
    return any(server.slots == 1 and server.cache_mib == 0 for server in facts.servers)
