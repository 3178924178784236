"""What does keeping state cost while a prompt is read: in memory, and on the SSD too?

    python bench/store_cost.py                                    SmolLM2, about 6 minutes on two cores
    python bench/store_cost.py --model hybrid --tokens 512        a minute

Three servers get prompts in turn (ABC BCA CAB ...): one with the caches in memory and on the SSD, one with
that in memory alone, one without any. Every prompt is new. Compared: prompt tokens a second up to the
first token of the reply, and tokens of the reply a second after it. Before the next server's turn
everything is on the disk, so that nobody pays for another's writing; what is written after a reply has ended
costs nobody anything here. Nothing else should run on the machine.
"""

from __future__ import annotations

import argparse
import statistics
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import psutil

from machine import write_results
from models import MODELS, text_tokens
from servers import Ask, Server, Setup, counters, headstart, wait_written
from workloads import Source

REPLY_TOKENS = 64
KINDS: dict[str, tuple[str, ...]] = {"ssd": ("--ssd-cache", "20GB"), "ram": (), "none": ("--no-cache",)}
"""The servers: both caches, that in memory alone, none."""


def measured(server: Server, source: Source, tokens: int, forced: int) -> tuple[float, float]:
    """Prompt tokens a second, and reply tokens a second after the first."""
    reply = server.complete(Ask(source.take(tokens), REPLY_TOKENS, force=forced))
    if reply.read_tokens != tokens:
        raise RuntimeError(f"{reply.read_tokens} of {tokens} tokens were read: the prompt was not new")
    return tokens / reply.first_token_s, (REPLY_TOKENS - 1) / (reply.wall_s - reply.first_token_s)


def compared(what: str, name: str, base: str, per_s: dict[str, list[float]]) -> dict[str, Any]:
    """Medians of `name` and of `base`, and what part of its speed `name` loses against it."""
    with_s, without_s = per_s[name], per_s[base]
    return {
        "what": what,
        "with": name,
        "without": base,
        "with_per_s": round(statistics.median(with_s), 2),
        "without_per_s": round(statistics.median(without_s), 2),
        "cost": round(1 - statistics.median(with_s) / statistics.median(without_s), 4),
        "cost_of_pairs": [round(1 - a / b, 4) for a, b in zip(with_s, without_s, strict=True)],
    }


def lines(results: dict[str, Any]) -> list[str]:
    """The results as a Markdown table."""
    rows = ["| tokens a second | with | without | with | without | cost |", "|---|---|---|---:|---:|---:|"]
    for one in results["results"]:
        rows.append(
            f"| {one['what']} | {one['with']} | {one['without']} | {one['with_per_s']:.1f} | "
            f"{one['without_per_s']:.1f} | {one['cost']:+.1%} |"
        )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", choices=MODELS, default="smollm2")
    parser.add_argument("--tokens", type=int, default=2048, help="tokens of a prompt (default: 2048)")
    parser.add_argument("--repeats", type=int, default=5, help="prompts a server (default: 5)")
    parser.add_argument("--threads", type=int, default=psutil.cpu_count(logical=False) or 1)
    parser.add_argument("--out", type=Path, help="folder for the results (default: bench/results)")
    options = parser.parse_args()
    model = MODELS[options.model]()
    text, forced = text_tokens(model)
    source = Source(text, 5)
    setup = Setup(model, options.tokens + REPLY_TOKENS + 64, options.threads)
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in KINDS}
    with ExitStack() as stack:
        servers = {name: stack.enter_context(headstart(setup, *flags)) for name, flags in KINDS.items()}
        for server in servers.values():
            measured(server, source, 64, forced)  # the first request pays for pages and threads
        names = list(KINDS)
        for repeat in range(options.repeats):
            for at in range(len(names)):
                name = names[(at + repeat) % len(names)]
                found[name].append(measured(servers[name], source, options.tokens, forced))
                wait_written(servers[name].url)
                print(name, found[name][-1], flush=True)
        written = counters(servers["ssd"].url)["headstart_ssd_written_bytes_total"]
    results = [
        compared(what, name, base, {kind: [pair[at] for pair in pairs] for kind, pairs in found.items()})
        for at, what in enumerate(("prefill", "decode"))
        for name, base in (("ssd", "ram"), ("ram", "none"), ("ssd", "none"))
    ]
    shape = {"model": options.model, "prompt_tokens": options.tokens, "threads": options.threads}
    everything = {**shape, "repeats": options.repeats, "written_bytes": int(written), "results": results}
    print("\n".join(lines(everything)))
    print(write_results(f"store_cost_{options.model}", everything, *([options.out] if options.out else [])))


if __name__ == "__main__":
    main()
