"""A laptop on its battery reads prompts slower."""

from __future__ import annotations

from collections.abc import Iterator

from headstart.blame.doctor.facts import Complaint, Facts, Severity, complain
from headstart.blame.finding import Fix


def check(facts: Facts) -> Iterator[Complaint]:
    machine = facts.machine
    if machine.on_battery:
        left = "" if machine.battery_percent is None else f", {machine.battery_percent:.0f} % left"
        yield complain(
            Severity.NOTE,
            "power",
            "ON_BATTERY",
            f"this machine runs on its battery{left}",
            "processors and GPUs are slower then, and every token that is read again costs more",
            fix=Fix("plug it in"),
        )
