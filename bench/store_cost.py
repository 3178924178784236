"""What does keeping state on the SSD cost while a prompt is read?

    python bench/store_cost.py [--tokens 2048] [--repeats 5]

Two servers with SmolLM2, one with a cache on disk and one without, get prompts in turn (A B B A) that no
server has seen; each pays for reading the prompt and, the one of them, for checksums, files and flushing
meanwhile. Compared: prompt tokens a second up to the first token of the reply. `decode` is the same for
the tokens of the reply after it. Nothing else should run on the machine.
"""

from __future__ import annotations

import argparse
import statistics
from typing import Any

import psutil

from machine import write_results
from models import MODELS, text_tokens
from servers import Ask, Server, Setup, headstart
from workloads import Source

REPLY_TOKENS = 64


def measured(server: Server, source: Source, tokens: int, forced: int) -> tuple[float, float]:
    """Prompt tokens a second, and reply tokens a second after the first."""
    reply = server.complete(Ask(source.take(tokens), REPLY_TOKENS, force=forced))
    if reply.read_tokens != tokens:
        raise RuntimeError(f"{reply.read_tokens} of {tokens} tokens were read: the prompt was not new")
    return tokens / reply.first_token_s, (REPLY_TOKENS - 1) / (reply.wall_s - reply.first_token_s)


def summary(name: str, on: list[float], off: list[float]) -> dict[str, Any]:
    pairs = [1 - a / b for a, b in zip(on, off, strict=True)]
    return {
        "what": name,
        "with_per_s": round(statistics.median(on), 2),
        "without_per_s": round(statistics.median(off), 2),
        "cost": round(1 - statistics.median(on) / statistics.median(off), 4),
        "cost_of_pairs": [round(cost, 4) for cost in pairs],
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", choices=MODELS, default="smollm2")
    parser.add_argument("--tokens", type=int, default=2048)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--threads", type=int, default=psutil.cpu_count(logical=False) or 1)
    parser.add_argument("--out", type=Path, help="folder for the results (default: bench/results)")
    options = parser.parse_args()
    model = MODELS[options.model]()
    text, forced = text_tokens(model)
    source = Source(text, 5)
    setup = Setup(model, options.tokens + REPLY_TOKENS + 64, options.threads)
    found: dict[str, list[tuple[float, float]]] = {"on": [], "off": []}
    with headstart(setup, "--ssd-cache", "20GB") as on, headstart(setup) as off:
        servers = {"on": on, "off": off}
        for server in servers.values():
            measured(server, source, 64, forced)  # the first request pays for pages and threads
        for repeat in range(options.repeats):
            for name in ("on", "off") if repeat % 2 == 0 else ("off", "on"):
                found[name].append(measured(servers[name], source, options.tokens, forced))
                print(name, found[name][-1], flush=True)
    results = [
        summary(what, [pair[at] for pair in found["on"]], [pair[at] for pair in found["off"]])
        for at, what in enumerate(("prefill", "decode"))
    ]
    print(results)
    shape = {"model": options.model, "prompt_tokens": options.tokens, "threads": options.threads}
    print(write_results("store_cost", {**shape, "results": results}))


if __name__ == "__main__":
    main()
