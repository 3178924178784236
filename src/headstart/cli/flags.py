"""From declared options to command-line flags, and back to what was given."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

from headstart.options import Option


def add_flags(parser: argparse.ArgumentParser, options: Sequence[Option]) -> None:
    """A flag for every option, in the sections the options name."""
    sections: dict[str, Any] = {}
    for option in options:
        section = sections.get(option.group) or parser.add_argument_group(option.group)
        sections[option.group] = section
        section.add_argument(option.flag, **_how_to_add(option))


def _how_to_add(option: Option) -> dict[str, Any]:
    how: dict[str, Any] = {
        "dest": option.field_name,
        "default": argparse.SUPPRESS,
        "help": f"{option.help} [{option.variable}] (default: {option.default_text})".replace("%", "%%"),
    }
    if option.boolean:
        return how | {"action": argparse.BooleanOptionalAction}
    return how | {"action": "append" if option.repeatable else "store", "metavar": option.metavar}


def given_flags(namespace: argparse.Namespace, options: Sequence[Option]) -> dict[str, Any]:
    """What the command line gave, by field name; nothing for flags that were left out."""
    return {
        o.field_name: getattr(namespace, o.field_name) for o in options if hasattr(namespace, o.field_name)
    }
