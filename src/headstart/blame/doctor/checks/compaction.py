"""An agent that compacts later than the server can hold."""

from __future__ import annotations

from collections.abc import Iterator

from headstart.blame.doctor.facts import Complaint, Facts, Severity, complain
from headstart.blame.finding import Culprit, Fix

SETTING = "model_auto_compact_token_limit"


def check(facts: Facts) -> Iterator[Complaint]:
    contexts = [server.context_tokens for server in facts.servers if server.context_tokens]
    for agent in facts.agents:
        limit = agent.settings.get(SETTING, "")
        if agent.name == "codex" and limit.isdecimal() and contexts and int(limit) > max(contexts):
            yield complain(
                Severity.WARNING if agent.local else Severity.NOTE,
                "Codex",
                "TRUNCATED",
                f"{SETTING} is {int(limit):,}, the largest context here {max(contexts):,}",
                "the prompt is cut or refused before the agent would shorten it",
                fix=Fix(
                    "set it below the context, in ~/.codex/config.toml",
                    f"{SETTING} = {max(contexts) * 3 // 4}",
                ),
                culprit=Culprit.CLIENT,
            )
