"""`headstart accept`: proves a server's prefix cache, or shows where it fails."""

from __future__ import annotations

import argparse
from pathlib import Path

from headstart.accept import gates, servers, wires
from headstart.errors import ConfigError

SUMMARY = "prove a server's prefix cache, or catch it lying"
DESCRIPTION = """\
Asks a server the questions that show whether its prefix cache works: what must be reused is, what
must not be is not, and answers do not depend on it. Any server that speaks OpenAI's, Anthropic's or
Ollama's API. Exit status 0: nothing failed."""
EPILOG = f"""\
gates, in the order they run:
  {", ".join(gates.NAMES)}

verdicts:
  PASS          shown, with the figures beside it
  FAIL          shown otherwise; the cases named in results.json are the evidence
  INCONCLUSIVE  could not be judged; the reason says what was missing
  UNSUPPORTED   the server or the command line does not offer what the gate needs

examples:
  headstart accept http://127.0.0.1:8000/v1 --tiers 8k --out results/first
  headstart accept http://127.0.0.1:11434 --model qwen3:4b --only cold,exact_repeat
  headstart accept http://127.0.0.1:8080 --spawn 'llama-server -m model.gguf --port 8080'
  headstart accept --self-host model.gguf --tiers 8k --out results/here
  headstart accept compare results/first results/second
  headstart accept --self-test
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of the command."""
    parser.add_argument(
        "words", nargs="*", metavar="URL", help="the server, with or without /v1; or: compare A B"
    )
    add = parser.add_argument
    add("--model", help="its name as the server lists it (default: the first it lists)")
    add("--out", metavar="DIR", help="results directory, made new (default: accept-DATE-TIME)")
    add("--tiers", default="8k,32k", help="sizes of prompt, in tokens: 8k,32k,128k or 500 (default: 8k,32k)")
    add("--only", default="", metavar="GATES", help="run these gates alone, separated by commas")
    add("--skip", default="", metavar="GATES", help="leave these gates out")
    add("--server", default="auto", help=f"auto, {', '.join(servers.NAMES)}")
    add("--wire", help=f"wire format to judge on: {', '.join(wires.NAMES)}")
    add("--api-key", help="sent with every request, kept out of every file")
    add("--spawn", metavar="COMMAND", help="start the server with this command; allows restart and crash")
    add("--self-host", metavar="MODEL", help="start headstart itself on this model, and judge that")
    add("--serve-flags", default="", metavar="FLAGS", help="with --self-host: more flags of headstart serve")
    add("--restart-cmd", metavar="COMMAND", help="a command that restarts a server already running")
    add(
        "--control-cmd",
        metavar="COMMAND",
        help="starts the same server with its cache off, at --control-url or in place of --spawn's",
    )
    add("--control-url", metavar="URL", help="the same server with its cache off, running already")
    add("--other-model", metavar="NAME", help="a second model, for the model switch")
    add(
        "--model-dir", metavar="PATH", help="the model's files, hashed and compared with what the server says"
    )
    add("--samples", type=int, default=3, help="how often a timing is taken (default: 3)")
    add(
        "--churn-prompts",
        type=int,
        default=24,
        metavar="N",
        help="unrelated prompts the gate churn sends: more than the cache holds (default: 24)",
    )
    add(
        "--sweep-points",
        type=int,
        default=30,
        metavar="N",
        help="edits the gate gap_sweep tries; fewer find a coarser rule (default: 30)",
    )
    add(
        "--patience",
        type=float,
        default=600.0,
        metavar="SECONDS",
        help="silence that counts as hung (default: 600)",
    )
    add(
        "--tolerance",
        type=float,
        default=1.0,
        help="difference of a log-probability that is noise (default: 1.0)",
    )
    add(
        "--salt", help="repeat the texts of a run (its salt is in results.json); the default is new each time"
    )
    add("--json", action="store_true", help="print the results as JSON instead of the table")
    add("--anyway", action="store_true", help="compare: also what cannot be compared fairly")
    add("--self-test", action="store_true", help="run the gates on servers with planted defects")


def run(flags: argparse.Namespace) -> int:
    """Exit status 0: nothing failed and something was judged. What it takes is imported here, so that other
    commands start without it."""
    if flags.self_test:
        from headstart.lab import selftest

        return selftest.run(flags)
    if flags.words[:1] == ["compare"]:
        if len(flags.words) != 3:
            raise ConfigError("compare takes two results: headstart accept compare A B")
        from headstart.accept.report import compare

        first, second = map(Path, flags.words[1:])
        return compare.run(first, second, anyway=flags.anyway, as_json=flags.json)
    if flags.self_host:
        from headstart.cli.accept_run import judge
        from headstart.cli.self_host import self_hosted

        with self_hosted(flags) as commands:
            return judge(commands)
    if len(flags.words) != 1:
        raise ConfigError("give the URL of one server, e.g. headstart accept http://127.0.0.1:8000/v1")
    from headstart.cli.accept_run import judge

    return judge(flags)
