"""The command line: `headstart COMMAND`, one file a command.

Exit status: 0 done, 1 failed at work, 2 a flag, setting or file that cannot be used.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from typing import NoReturn

from headstart import __version__
from headstart.cli import accept, cache, doctor, explain, launch, models, serve, watch
from headstart.errors import ConfigError, HeadstartError
from headstart.options import suggestion

COMMANDS = {
    "serve": serve,
    "launch": launch,
    "models": models,
    "accept": accept,
    "cache": cache,
    "watch": watch,
    "explain": explain,
    "doctor": doctor,
}

PIPE_CLOSED = 141
"""What a shell reports of a program that a closed pipe has ended."""

DESCRIPTION = """\
headstart: an LLM server that never reads a prompt token twice.

A prompt that begins like an earlier one resumes at the exact token where the two part,
and the reply says how many tokens were not read again."""

EPILOG = """\
examples:
  headstart serve                                the embedded model on http://127.0.0.1:8000
  headstart serve --model ~/models/qwen3.gguf    a model of yours
  headstart serve --help                         every setting, with units and defaults
  headstart launch claude                        a coding agent on it
  headstart models show ~/models/qwen3.gguf      what a model is, before it is loaded
  headstart cache ls                             what is stored on disk
  headstart watch --upstream URL                 which prompts a server reads again, and why
  headstart explain server.log                   why prompts were read again
  headstart doctor                               what on this machine makes them be read again
"""


class _Parser(argparse.ArgumentParser):
    """A parser whose errors are ConfigErrors: one line, no usage text in front of it."""

    def error(self, message: str) -> NoReturn:
        raise ConfigError(message)


def build_parser() -> argparse.ArgumentParser:
    """The parser of the whole command line."""
    parser = _Parser(
        prog="headstart",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"headstart {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", title="commands")
    for name, command in COMMANDS.items():
        one = commands.add_parser(
            name,
            usage=f"headstart {name} [flags]",
            help=command.SUMMARY,
            description=command.DESCRIPTION,
            epilog=command.EPILOG,
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )
        command.add_arguments(one)
        one.set_defaults(run=command.run, flags=tuple(one._option_string_actions))
    return parser


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Parsed arguments. Raises ConfigError for a command or flag there is not."""
    arguments, others = _split(arguments)
    words = [word for word in arguments if not word.startswith("-")]
    if words and words[0] not in COMMANDS and arguments[0] == words[0]:
        raise ConfigError(
            f"there is no command {words[0]!r}{suggestion(words[0], COMMANDS)}; see headstart --help"
        )
    namespace, unknown = build_parser().parse_known_args(arguments)
    if unknown:
        flag = unknown[0].partition("=")[0]
        known = getattr(namespace, "flags", ())
        raise ConfigError(f"unknown argument {flag}{suggestion(flag, known)}; see headstart --help")
    namespace.others = others
    return namespace


def _split(arguments: Sequence[str]) -> tuple[Sequence[str], Sequence[str]]:
    """What is for headstart, and what `launch` passes on: all behind the first `--`."""
    if arguments[:1] != ["launch"] or "--" not in arguments:
        return arguments, []
    at = arguments.index("--")
    return arguments[:at], arguments[at + 1 :]


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command and answers with its exit status."""
    arguments = sys.argv[1:] if arguments is None else arguments
    try:
        namespace = parse(arguments)
        if namespace.command is None:
            build_parser().print_help(sys.stderr)
            return 2
        status = int(namespace.run(namespace))
        sys.stdout.flush()
        return status
    except BrokenPipeError:
        # Whoever read this has enough, as `head` has. Python would complain once more when it closes stdout.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return PIPE_CLOSED
    except ConfigError as error:
        print(f"headstart: {error}", file=sys.stderr)
        return 2
    except HeadstartError as error:
        print(f"headstart: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("headstart: stopped", file=sys.stderr)
        return 130
