"""`headstart cache`: what is stored on disk, and what of it a prompt would use."""

from __future__ import annotations

import argparse

from headstart.cli import cache_change, cache_look, cache_server
from headstart.cli.cache_action import Action

SUMMARY = "look at, check, tidy, move and warm the cache on disk"

DESCRIPTION = """\
The cache on disk holds what prompts have left behind: blocks of tokens with the model's state, in
files that outlive the server. A conversation is one path through them, named by the digits that
`ls` shows in its first column.

`ls`, `stat`, `verify` and `export` work beside a running server. `gc`, `rm` and `import` need the
cache for themselves. `probe` and `warm` ask a running server."""

EPILOG = """\
examples:
  headstart cache ls                                 conversations, the one used last first
  headstart cache stat --json                        sizes and counts for a program
  headstart cache verify                             read everything; exit status 1 if anything is bad
  headstart cache gc --to 5GB                        tidy up, and drop what was used longest ago
  headstart cache rm 3f2a91c04b7d                    one conversation
  headstart cache export work.tar 3f2a91c04b7d       take it to another machine with the same model
  headstart cache import work.tar
  headstart cache probe request.json                 what would be restored, and why not more
  headstart cache warm system.json                   read a system prompt and tools ahead of time
  headstart cache COMMAND --help                     flags of one of them

Exit status: 0 done, 1 failed at work or something is bad, 2 a flag, directory or file that cannot
be used.
"""

ACTIONS: tuple[Action, ...] = (*cache_look.ACTIONS, *cache_server.ACTIONS, *cache_change.ACTIONS)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The commands of `cache` and their flags."""
    parser.usage = "headstart cache COMMAND [flags]"
    commands = parser.add_subparsers(
        dest="action", metavar="COMMAND", title="commands", required=True, prog="headstart cache"
    )
    for action in ACTIONS:
        one = commands.add_parser(
            action.name,
            usage=f"headstart cache {action.usage}",
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
