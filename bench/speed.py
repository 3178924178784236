"""How fast, beside llama.cpp's own server: prefill, decode, four at a time, warm start, Python's share.

    python bench/speed.py                  SmolLM2, about 10 minutes on two cores
    python bench/speed.py --quick          small sizes, two minutes, numbers not worth quoting
    python bench/speed.py --only single warm

Servers are measured in turn (A B A B) in one run, each repeat with a prompt of its own; medians
are compared. Nothing else should run on the machine.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import psutil

from machine import write_results
from models import MODELS, text_tokens
from servers import Ask, Reply, Server, Setup, counters, headstart, llama_server
from workloads import Source, Tokens

HERE = Path(__file__).parent
SLOTS = 4


@dataclass(frozen=True)
class Sizes:
    """How much is measured: tokens of prompts and replies, and repeats."""

    prefill: int = 1024
    decode: int = 96
    warm: int = 7000
    repeats: int = 5


QUICK = Sizes(prefill=256, decode=16, warm=512, repeats=2)


@dataclass(frozen=True)
class Bench:
    """What all questions share."""

    model: Path
    threads: int
    sizes: Sizes
    source: Source
    forced: int

    def setup(self, context: int, slots: int = 1) -> Setup:
        return Setup(self.model, context + 64, self.threads, slots)

    def ask(self, server: Server, prompt_tokens: int, count: int) -> Reply:
        """A request no server has seen the beginning of."""
        return server.complete(Ask(self.source.take(prompt_tokens), count, force=self.forced))


def decode_per_s(reply: Reply) -> float:
    """Tokens a second after the first, seen from the client."""
    return (reply.completion_tokens - 1) / (reply.wall_s - reply.first_token_s)


def single(bench: Bench) -> dict[str, Any]:
    """Cold prefill and decode of one request at a time."""
    sizes = bench.sizes
    setup = bench.setup(sizes.prefill + sizes.decode)
    found: dict[str, list[Reply]] = {}
    with headstart(setup) as ours, llama_server(setup) as theirs:
        for server in (ours, theirs):
            bench.ask(server, 64, 4)  # the first request pays for pages and threads
        for _ in range(sizes.repeats):
            for server in (ours, theirs):
                found.setdefault(server.name, []).append(bench.ask(server, sizes.prefill, sizes.decode))
    return {
        "prompt_tokens": sizes.prefill,
        "prefill_tokens_per_s": compare(found, lambda reply: reply.prompt_tokens / reply.first_token_s),
        "decode_tokens_per_s": compare(found, decode_per_s),
    }


def concurrent(bench: Bench, *, unified: bool = False) -> dict[str, Any]:
    """Four replies at a time: headstart with --batching shared, llama-server with four slots.

    Both have room for four whole requests: a shared context's --ctx-size is that of all together, as
    n_ctx of llama-server is. Sequences that had to step aside are counted; there must be none.
    """
    sizes = bench.sizes
    setup = replace(bench.setup(64 + sizes.decode, SLOTS), unified=unified)
    flags = ("--batching", "shared", "--ctx-size", str(setup.context_tokens * SLOTS))
    found: dict[str, list[float]] = {}
    with headstart(setup, *flags) as ours, llama_server(setup) as theirs:
        for _ in range(sizes.repeats):
            for server in (ours, theirs):
                found.setdefault(server.name, []).append(decoded_per_s(bench, server, sizes.decode))
        preemptions = counters(ours.url)["headstart_preemptions_total"]
    return {"slots": SLOTS, "preemptions": preemptions, "decode_tokens_per_s": compare(found, float)}


def decoded_per_s(bench: Bench, server: Server, count: int) -> float:
    """Tokens a second over SLOTS replies at once, short prompts included."""
    prompts = [bench.source.take(32) for _ in range(SLOTS)]
    with ThreadPoolExecutor(SLOTS) as pool:
        started_s = time.perf_counter()
        replies = list(
            pool.map(lambda prompt: server.complete(Ask(prompt, count, force=bench.forced)), prompts)
        )
        return sum(reply.completion_tokens for reply in replies) / (time.perf_counter() - started_s)


def warm(bench: Bench) -> dict[str, Any]:
    """Time to first token of a long prompt: cold, from the live sequence, from RAM."""
    n = bench.sizes.warm
    found: dict[str, list[Reply]] = {"cold": [], "live": [], "ram": []}
    with headstart(bench.setup(n + 16)) as server:
        for _ in range(max(1, bench.sizes.repeats // 2)):
            prompt = bench.source.take(n)
            found["cold"].append(server.complete(Ask(prompt, 2, force=bench.forced)))
            found["live"].append(changed_end(bench, server, prompt))
            bench.ask(server, 32, 2)  # takes the one lane, so that the long prompt is in RAM only
            found["ram"].append(changed_end(bench, server, prompt))
    first = {
        kind: statistics.median(reply.first_token_s for reply in replies) for kind, replies in found.items()
    }
    return {
        "prompt_tokens": n,
        "first_token_s": first,
        "cold_over_live": first["cold"] / first["live"],
        "cold_over_ram": first["cold"] / first["ram"],
        "tiers": {kind: [reply.facts.get("tier") for reply in replies] for kind, replies in found.items()},
        "read_tokens": {kind: [reply.read_tokens for reply in replies] for kind, replies in found.items()},
    }


def changed_end(bench: Bench, server: Server, prompt: Tokens) -> Reply:
    """`prompt` with other last tokens, so that no stored end helps."""
    return server.complete(Ask(prompt[:-8] + bench.source.take(8), 2, force=bench.forced))


def python_share(bench: Bench) -> dict[str, Any]:
    """Time a decoded token costs outside the engine's forward pass, one request at a time."""
    count = bench.sizes.decode
    with headstart(bench.setup(64 + count)) as server:
        bench.ask(server, 32, 4)
        before = counters(server.url)
        replies = [bench.ask(server, 32, count) for _ in range(bench.sizes.repeats)]
        spent = {name: value - before[name] for name, value in counters(server.url).items()}
    steps = spent["headstart_engine_steps_total"]
    outside_s = spent["headstart_scheduler_busy_seconds_total"] - spent["headstart_engine_seconds_total"]
    per_token_s = statistics.median(1 / decode_per_s(reply) for reply in replies)
    bare_s = bare_decode_s(bench)
    return {
        "scheduler_outside_engine_ms_per_step": outside_s / steps * 1e3,
        "client_ms_per_token": per_token_s * 1e3,
        "bare_llama_decode_ms_per_token": bare_s * 1e3,
        "client_beyond_bare_ms_per_token": (per_token_s - bare_s) * 1e3,
    }


def bare_decode_s(bench: Bench) -> float:
    """Median time of one llama_decode of one token, in a process that does nothing else."""
    command = [sys.executable, str(HERE / "bare_decode.py"), str(bench.model), str(bench.threads)]
    done = subprocess.run([*command, str(bench.sizes.decode)], capture_output=True, text=True, check=True)
    return float(done.stdout)


def compare(found: dict[str, list[Any]], value: Callable[[Any], float]) -> dict[str, Any]:
    """Medians and all values a server, and the first server over the second."""
    values = {name: [value(one) for one in ones] for name, ones in found.items()}
    medians = {name: statistics.median(ones) for name, ones in values.items()}
    first, second = medians.values()
    return {"median": medians, "ratio": first / second, "all": values}


def concurrent_unified(bench: Bench) -> dict[str, Any]:
    """The same, llama-server with its rows in one buffer too: what is left is not the buffer's cost."""
    return concurrent(bench, unified=True)


QUESTIONS = {
    "single": single,
    "concurrent": concurrent,
    "concurrent_unified": concurrent_unified,
    "warm": warm,
    "python": python_share,
}


def lines(results: dict[str, Any]) -> list[str]:
    """The results as Markdown table rows."""
    rows = ["| what | headstart | llama-server | ratio |", "|---|---:|---:|---:|"]
    for question, key, label in (
        ("single", "prefill_tokens_per_s", "cold prefill, tokens/s"),
        ("single", "decode_tokens_per_s", "decode, one request, tokens/s"),
        ("concurrent", "decode_tokens_per_s", f"decode, {SLOTS} requests, --batching shared, tokens/s"),
        ("concurrent_unified", "decode_tokens_per_s", "the same, llama-server with --kv-unified"),
    ):
        if question in results:
            one = results[question][key]
            ours, theirs = one["median"].values()
            rows.append(f"| {label} | {ours:.1f} | {theirs:.1f} | {one['ratio']:.3f} |")
    if "warm" in results:
        one = results["warm"]
        for kind, seconds in one["first_token_s"].items():
            factor = "" if kind == "cold" else f"1/{one[f'cold_over_{kind}']:.0f}"
            rows.append(
                f"| TTFT of {one['prompt_tokens']} tokens, {kind} | {seconds * 1e3:.0f} ms | | {factor} |"
            )
    for name, value in results.get("python", {}).items():
        rows.append(f"| {name.replace('_', ' ')} | {value:.3f} | | |")
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", choices=MODELS, default="smollm2")
    parser.add_argument("--only", nargs="+", choices=QUESTIONS, default=list(QUESTIONS))
    parser.add_argument("--threads", type=int, default=psutil.cpu_count(logical=False) or 1)
    parser.add_argument("--repeats", type=int, help=f"of every measurement (default: {Sizes().repeats})")
    parser.add_argument("--quick", action="store_true", help="small sizes, to see that it runs")
    parser.add_argument("--out", type=Path, help="folder for the results (default: bench/results)")
    options = parser.parse_args()
    path = MODELS[options.model]()
    text, forced = text_tokens(path)
    salt = int(time.time()) % 997
    sizes = QUICK if options.quick else Sizes()
    if options.repeats:
        sizes = replace(sizes, repeats=options.repeats)
    bench = Bench(path, options.threads, sizes, Source(text, salt), forced)
    results: dict[str, Any] = {"model": options.model, "threads": options.threads}
    for question in options.only:
        print(f"{question} ...", file=sys.stderr)
        results[question] = QUESTIONS[question](bench)
        print("\n".join(lines({question: results[question]})), file=sys.stderr)
    print("\n".join(lines(results)))
    name = f"speed_{options.model}" + ("_quick" if options.quick else "")
    print(f"\n{write_results(name, results, *([options.out] if options.out else []))}", file=sys.stderr)


if __name__ == "__main__":
    main()
