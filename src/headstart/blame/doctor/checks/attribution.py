"""Claude Code's billing line, which stands at the very beginning of its system prompt."""

from __future__ import annotations

from collections.abc import Iterator

from headstart.blame.doctor.facts import Complaint, Facts, Severity, complain
from headstart.blame.finding import Culprit, Fix

VARIABLE = "CLAUDE_CODE_ATTRIBUTION_HEADER"


def check(facts: Facts) -> Iterator[Complaint]:
    for agent in facts.agents:
        if agent.name != "claude":
            continue
        value = agent.settings.get(VARIABLE)
        if value != "0":
            yield complain(
                Severity.WARNING if agent.local else Severity.NOTE,
                "Claude Code",
                "ATTRIBUTION",
                f"{VARIABLE} is {'not set' if value is None else 'not 0'}",
                "its first system line has digits that follow the prompt: sessions share nothing where the "
                "template puts the system prompt first, and in some versions no two turns do",
                fix=Fix("leave the line out", f"export {VARIABLE}=0"),
                culprit=Culprit.CLIENT,
            )
        elif agent.sources.get(VARIABLE) != "environment":
            yield complain(
                Severity.NOTE,
                "Claude Code",
                "ATTRIBUTION",
                f"{VARIABLE} is 0 in settings.json alone",
                "whether that suffices is not proven; launchers pass it in the environment",
                fix=Fix("set it there too", f"export {VARIABLE}=0"),
                culprit=Culprit.CLIENT,
            )
