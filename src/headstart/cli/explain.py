"""`headstart explain`: why prompts were read again, from what a server or a recording wrote down."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Mapping
from enum import Enum, auto
from pathlib import Path

from headstart.blame.exchange import Dialect
from headstart.cli import explain_log, explain_recording, explain_requests
from headstart.cli.readers import MODEL_HELP
from headstart.errors import ConfigError

SUMMARY = "say why prompts were read again, from a recording or a server's log"
DESCRIPTION = """\
Reads what headstart watch recorded, a server's log, or two requests: which prompts were read again though
they had been read before, who is to blame (client, chat template, tokenizer or server), where they part,
what it cost, and the setting that mends it. Nothing is sent anywhere but to a server that --model names."""
EPILOG = f"""\
logs it reads: {", ".join(explain_log.FORMATS)}; also mixed, cut, coloured or in UTF-16

examples:
  headstart explain today.jsonl                      a recording of headstart watch --record
  headstart explain today.jsonl --model qwen3.gguf   and what the template and tokenizer make of it
  headstart explain today.jsonl --html page.html     as a page
  headstart explain today.jsonl --turns 3,4          two of its exchanges
  headstart explain before.json after.json           two request bodies: where they part, and why
  headstart explain server.log                       turns and findings, the most expensive first
  journalctl -u ollama | headstart explain -         a log from a pipe
  headstart explain server.log --format llama-server
  headstart explain server.log --json                for a program

Exit status: 0 read, 1 nothing in it can be read, 2 a flag or file that cannot be used.
"""

RECORDING_FORMAT = "headstart-recording"
_FIRST_LINE_BYTES = 65536


class Kind(Enum):
    """What can be explained."""

    SERVER_LOG = auto()
    RECORDING = auto()
    REQUESTS = auto()


def kind_of(words: list[str]) -> Kind:
    """What the files are. Raises ConfigError for a number of files that means nothing."""
    if len(words) == 2:
        return Kind.REQUESTS
    if len(words) != 1:
        raise ConfigError("explain takes a recording, a server's log, or two request bodies")
    # Of a pipe, what is looked at is gone.
    if words[0] != "-" and Path(words[0]).is_file() and _is_recording(Path(words[0])):
        return Kind.RECORDING
    return Kind.SERVER_LOG


def _is_recording(path: Path) -> bool:
    """Whether the first line is the heading of a recording."""
    try:
        with path.open("rb") as file:
            heading = json.loads(file.readline(_FIRST_LINE_BYTES))
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(heading, dict) and heading.get("format") == RECORDING_FORMAT


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of the command."""
    parser.usage = "headstart explain RECORDING | SERVER-LOG | REQUEST REQUEST [flags]"
    add = parser.add_argument
    add("words", nargs="+", metavar="FILE", help="What to explain; - is a log from standard input.")
    add("--json", action="store_true", help="Answer with one JSON object on stdout.")
    add("--html", type=Path, metavar="FILE", help="Write a page to a new file. Not of logs.")
    add("--model", metavar="SOURCE", help=f"{MODEL_HELP[0].upper()}{MODEL_HELP[1:]}. Not of logs.")
    add("--turns", metavar="N,M", help="Of a recording, compare these two exchanges, by their numbers.")
    add(
        "--har",
        type=Path,
        metavar="FILE",
        help="Write a recording as HAR 1.2 to a new file, and nothing else.",
    )
    add(
        "--dialect",
        choices=[one.value for one in Dialect],
        metavar="NAME",
        help=f"API of two requests: {', '.join(one.value for one in Dialect)}. (default: by their looks)",
    )
    add(
        "--format",
        choices=tuple(explain_log.FORMATS),
        metavar="NAME",
        help=f"Whose log it is: {', '.join(explain_log.FORMATS)}. (default: what its lines tell)",
    )


EXPLAIN: Mapping[Kind, Callable[[argparse.Namespace], int]] = {
    Kind.SERVER_LOG: explain_log.run,
    Kind.RECORDING: explain_recording.run,
    Kind.REQUESTS: explain_requests.run,
}
_FLAGS: Mapping[Kind, tuple[str, ...]] = {
    Kind.SERVER_LOG: ("json", "format"),
    Kind.RECORDING: ("json", "html", "model", "turns", "har"),
    Kind.REQUESTS: ("json", "html", "model", "dialect"),
}
_NAMED = {Kind.SERVER_LOG: "a log", Kind.RECORDING: "a recording", Kind.REQUESTS: "two requests"}


def run(flags: argparse.Namespace) -> int:
    """Exit status 0: it was read. Raises HeadstartError."""
    kind = kind_of(flags.words)
    for name in ("html", "model", "turns", "har", "dialect", "format"):
        if getattr(flags, name) is not None and name not in _FLAGS[kind]:
            raise ConfigError(
                f"--{name} does not go with {_NAMED[kind]}, which {flags.words[0]} is taken for"
            )
    return EXPLAIN[kind](flags)
