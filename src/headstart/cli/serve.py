"""`headstart serve`: loads a model and serves it over HTTP until it is told to stop."""

from __future__ import annotations

import argparse
import logging
import os
import sys
from pathlib import Path

from headstart.cli.flags import add_flags, given_flags
from headstart.cli.terminal import Terminal
from headstart.config import OPTIONS, Settings, resolve

SUMMARY = "serve a model over the OpenAI API"

DESCRIPTION = """\
Serves one model over the OpenAI API. A prompt that begins like an earlier one resumes at the
exact token where the two part; usage.prompt_tokens_details.cached_tokens in every reply says
how many tokens were not read again.

A setting is taken from the command line, else from the environment variable in brackets, else
from the file --config, else the default. Sizes are B, KB, MB, GB or TB (1 KB is 1024 B) or a
plain number of bytes."""

EPILOG = """\
examples:
  headstart serve
      the embedded model on http://127.0.0.1:8000
  headstart serve --model ~/models/qwen3-8b-q4_k_m.gguf --ctx-size 32768 --ram-cache 16GB
      a model file, 32,768 tokens of context, 16 GB of memory for prefixes
  headstart serve --model base.gguf --lora style.gguf --lora facts.gguf=0.5
      a model with two LoRA adapters, the second at half its strength
  HEADSTART_API_KEY=... headstart serve --host 0.0.0.0
      reachable from other machines, for those who have the key
  headstart serve --batching shared --max-concurrent-requests 8
      more tokens a second over eight requests at a time
  headstart serve --config headstart.toml
      settings from a file, for instance: port = 9000, ram-cache = "8GB"
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of `serve`."""
    parser.add_argument(
        "--config",
        type=Path,
        metavar="FILE",
        help="TOML file with settings; its keys are the flags below without dashes. [HEADSTART_CONFIG]",
    )
    add_flags(parser, OPTIONS)


def run(arguments: argparse.Namespace) -> int:
    """Serves until SIGINT or SIGTERM. Raises HeadstartError where it cannot start."""
    settings = resolve(given_flags(arguments, OPTIONS), os.environ, arguments.config)
    configure_logging(settings)
    from headstart.cli.server import serve

    return serve(settings, Terminal())


def configure_logging(settings: Settings) -> None:
    """Log lines on stderr; what the HTTP library says about itself only when something is wrong."""
    level = settings.log_level.upper()
    logging.basicConfig(
        level=level, stream=sys.stderr, format="%(asctime)s %(levelname)s %(name)s: %(message)s", force=True
    )
    quiet = level if settings.log_level in ("debug", "error") else "WARNING"
    for name in ("uvicorn", "uvicorn.error", "uvicorn.access", "asyncio", "httpx", "httpcore"):
        logging.getLogger(name).setLevel(quiet)
