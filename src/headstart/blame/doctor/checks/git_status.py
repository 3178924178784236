"""The state of the repository inside an agent's prompt."""

from __future__ import annotations

from collections.abc import Iterator

from headstart.blame.doctor.facts import Complaint, Facts, Severity, complain
from headstart.blame.finding import Culprit, Fix

VARIABLE = "CLAUDE_CODE_DISABLE_GIT_INSTRUCTIONS"


def check(facts: Facts) -> Iterator[Complaint]:
    for agent in facts.agents:
        if agent.name == "claude" and agent.settings.get(VARIABLE) != "1":
            yield complain(
                Severity.NOTE,
                "Claude Code",
                "GIT_STATUS",
                f"{VARIABLE} is not 1",
                "the repository's state is part of the prompt: a new session in a changed repository reads "
                "what follows it again. It also takes about 1,800 tokens",
                fix=Fix("leave it out", f"export {VARIABLE}=1"),
                culprit=Culprit.CLIENT,
            )
