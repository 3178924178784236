"""`headstart models`: what a model is before it is loaded, and which ones this machine has."""

from __future__ import annotations

import argparse

from headstart.cli import models_ls, models_show
from headstart.cli.cache_action import Action

SUMMARY = "say what a model is, and list those on this machine"

DESCRIPTION = """\
What a model is, from its files: nothing is loaded, nothing is fetched, no server is asked."""

EPILOG = """\
examples:
  headstart models ls                                the embedded model and those in the hub cache
  headstart models show embedded
  headstart models show ~/models/qwen3.gguf
  headstart models show ~/models/Qwen3-8B-4bit       an MLX folder
  headstart models show owner/name --json            one in the hub cache, for a program
  headstart models COMMAND --help                    flags of one of them

Exit status: 0 done, 1 the model is missing, damaged or of a kind that cannot be read, 2 a flag or name
that cannot be used.
"""

ACTIONS: tuple[Action, ...] = (models_show.ACTION, models_ls.ACTION)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The commands of `models` and their flags."""
    parser.usage = "headstart models COMMAND [flags]"
    commands = parser.add_subparsers(
        dest="action", metavar="COMMAND", title="commands", required=True, prog="headstart models"
    )
    for action in ACTIONS:
        one = commands.add_parser(
            action.name,
            usage=f"headstart models {action.usage}",
            help=action.summary,
            description=action.description,
            epilog=action.epilog,
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )
        action.add_arguments(one)
        one.add_argument("--json", action="store_true", help="Answer with one JSON object on stdout.")
        one.set_defaults(act=action.run, flags=tuple(one._option_string_actions))


def run(arguments: argparse.Namespace) -> int:
    """Runs the chosen command; answers with the exit status. Raises HeadstartError."""
    return int(arguments.act(arguments))
