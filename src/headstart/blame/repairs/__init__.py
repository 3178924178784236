"""Safe repairs of requests, each a pure function: what an agent changed without its user having said anything
else is put back as it was.

A repair answers with the body itself where there is nothing to do, else with a new one that shares all it
did not touch, and says where it did what. None touches what the user said.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from headstart.blame.exchange import Dialect
from headstart.blame.repairs import arguments, billing, dates, reminders, tools
from headstart.blame.repairs.seen import Seen
from headstart.errors import ConfigError
from headstart.options import suggestion

__all__ = ["REPAIRS", "Repair", "Seen", "named", "repair"]

Notes = tuple[str, ...]


@dataclass(frozen=True)
class Repair:
    """`default`: made by a plain --fix."""

    summary: str
    apply: Callable[[Dialect, Any, Seen], tuple[Any, Notes]]
    default: bool = True


REPAIRS = {
    "billing": Repair("drop the billing line of Claude Code, which differs between sessions", billing.apply),
    "tools": Repair("keep tools in the order in which the conversation first had them", tools.apply),
    "arguments": Repair("send the arguments of calls back as the model wrote them", arguments.apply),
    "reminder": Repair("put a system reminder that moved to a later message back", reminders.apply),
    "date": Repair("keep the dates and times of the system prompt's first turn", dates.apply, default=False),
}


def named(text: str) -> tuple[str, ...]:
    """The repairs that `--fix TEXT` asks for, in the order they are made. Raises ConfigError."""
    names = [name.strip() for name in text.split(",") if name.strip()]
    for name in names:
        if name not in REPAIRS:
            raise ConfigError(
                f"--fix {name!r}: there is no such repair{suggestion(name, REPAIRS)}; "
                f"expected some of {', '.join(REPAIRS)}"
            )
    return tuple(name for name, one in REPAIRS.items() if (name in names if names else one.default))


def repair(dialect: Dialect, body: Any, seen: Seen, names: Sequence[str]) -> tuple[Any, Notes]:
    """`body` after the repairs in `names`, and what each did where."""
    said: list[str] = []
    if not isinstance(body, dict):
        return body, ()
    for name in names:
        body, notes = REPAIRS[name].apply(dialect, body, seen)
        said += [f"fix {name}: {note}" for note in notes]
    return body, tuple(said)
