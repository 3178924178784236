"""How many prompt tokens are read again, by headstart and by llama.cpp's own server?

    python bench/prefix_reuse.py                      every model, about 20 minutes on two cores
    python bench/prefix_reuse.py --quick              small prompts, two minutes
    python bench/prefix_reuse.py --models smollm2 --servers headstart --size 1024

Both servers get the same token prompts, with equal threads, micro-batch, flash attention and
context. For each step: tokens sent, tokens a perfect cache would read, tokens the server says it
read, time to first token and wall time at the client.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import psutil

from machine import write_results
from models import MODELS, text_tokens
from servers import Ask, Server, Setup, headstart, llama_server
from workloads import WORKLOADS, PerfectCache, Source, Step, Tokens, longest, play

SERVERS = {"headstart": headstart, "llama-server": llama_server}
SIZE = 2048
QUICK_SIZE = 320
REPLY_TOKENS = 16


@dataclass(frozen=True)
class Record:
    """One step as it went. `tier` and `reason` only where the server tells them."""

    model: str
    server: str
    workload: str
    step: str
    cold: bool
    prompt_tokens: int
    perfect_read_tokens: int
    read_tokens: int
    first_token_s: float
    wall_s: float
    tier: str | None = None
    reason: str | None = None


@dataclass(frozen=True)
class Trial:
    """One workload against one server."""

    model: str
    workload: str
    size: int
    salt: int
    text: Tokens
    reply: Tokens

    def run(self, server: Server) -> list[Record]:
        perfect, records = PerfectCache(), []

        def send(step: Step) -> Tokens:
            must_read = perfect.must_read(step.prompt)
            reply = server.complete(Ask(step.prompt, len(self.reply), force=self.reply[0]))
            if reply.prompt_tokens != len(step.prompt) or reply.completion_tokens != len(self.reply):
                raise RuntimeError(f"{server.name} counted {reply}, sent {len(step.prompt)} tokens")
            perfect.remember(step.prompt, self.reply)
            records.append(
                Record(
                    *(self.model, server.name, self.workload, step.name, step.cold),
                    prompt_tokens=len(step.prompt),
                    perfect_read_tokens=must_read,
                    read_tokens=reply.read_tokens,
                    first_token_s=reply.first_token_s,
                    wall_s=reply.wall_s,
                    tier=reply.facts.get("tier"),
                    reason=reply.facts.get("reason"),
                )
            )
            return list(self.reply)

        for _ in play(WORKLOADS[self.workload](Source(self.text, self.salt), self.size), send):
            pass
        return records


def run_model(name: str, servers: list[str], workloads: list[str], size: int, threads: int) -> list[Record]:
    """Every workload of one model, the servers taking turns at each."""
    path = MODELS[name]()
    text, forced = text_tokens(path)
    reply = [forced] * REPLY_TOKENS
    trials = [
        Trial(name, workload, size, salt, text, reply)
        for salt, workload in enumerate(WORKLOADS)
        if workload in workloads
    ]
    talks = (WORKLOADS[trial.workload](Source(text, trial.salt), size) for trial in trials)
    setup = Setup(path, context_tokens=longest(talks, reply) + 64, threads=threads)
    records = []
    with ExitStack() as stack:
        running = [stack.enter_context(SERVERS[server](setup)) for server in servers]
        for trial in trials:
            for server in running:
                print(f"{name}: {trial.workload}: {server.name}", file=sys.stderr)
                records += trial.run(server)
    return records


def summary(records: list[Record]) -> dict[str, Any]:
    """Sums over the steps of one workload on one server; times in seconds."""
    warm = [record.first_token_s for record in records if not record.cold]
    return {
        "sent": sum(record.prompt_tokens for record in records),
        "perfect": sum(record.perfect_read_tokens for record in records),
        "read": sum(record.read_tokens for record in records),
        "cold_s": next((record.first_token_s for record in records if record.cold), 0.0),
        "warm_s": statistics.median(warm) if warm else 0.0,
        "wall_s": sum(record.wall_s for record in records),
    }


def table(records: list[Record]) -> str:
    """A Markdown table: a row a model and workload, a group of columns a server."""
    servers = list(dict.fromkeys(record.server for record in records))
    heads = ["model", "workload", "sent", "perfect"]
    for server in servers:
        heads += [f"{server} read", "beyond perfect", "TTFT cold", "TTFT warm", "wall"]
    lines = ["| " + " | ".join(heads) + " |", "|" + "---|" * 2 + "---:|" * (len(heads) - 2)]
    for model, workload in dict.fromkeys((record.model, record.workload) for record in records):
        row = [model, workload]
        for server in servers:
            mine = [r for r in records if (r.model, r.workload, r.server) == (model, workload, server)]
            one = summary(mine)
            row += [f"{one['sent']}", f"{one['perfect']}"] if server == servers[0] else []
            row += [
                *(f"{one['read']}", f"{one['read'] - one['perfect']:+d}", f"{one['cold_s'] * 1e3:.0f} ms"),
                *(f"{one['warm_s'] * 1e3:.0f} ms", f"{one['wall_s']:.1f} s"),
            ]
        lines.append("| " + " | ".join(row) + " |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--servers", nargs="+", choices=SERVERS, default=list(SERVERS))
    parser.add_argument("--workloads", nargs="+", choices=WORKLOADS, default=list(WORKLOADS))
    parser.add_argument("--size", type=int, default=SIZE, help="tokens of a long prompt (default: 2048)")
    parser.add_argument("--threads", type=int, default=psutil.cpu_count(logical=False) or 1)
    parser.add_argument("--quick", action="store_true", help=f"prompts of {QUICK_SIZE} tokens")
    parser.add_argument("--out", type=Path, help="folder for the results (default: bench/results)")
    options = parser.parse_args()
    size = QUICK_SIZE if options.quick else options.size
    records = []
    for model in options.models:
        records += run_model(model, options.servers, options.workloads, size, options.threads)
    results = {"size": size, "threads": options.threads, "steps": [asdict(record) for record in records]}
    name = "prefix_reuse_quick" if options.quick else "prefix_reuse"
    path = write_results(name, results, *([options.out] if options.out else []))
    print(table(records))
    print(f"\n{path}", file=sys.stderr)


if __name__ == "__main__":
    main()
