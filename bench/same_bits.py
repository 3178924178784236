"""Do replies stay the same, bit for bit, whatever the cache did?

    python bench/same_bits.py                      SmolLM2, 200 prompts a question, about 30 minutes
    python bench/same_bits.py --quick              8 prompts a question, two minutes
    python bench/same_bits.py --model gemma3 --only repeat

Replies are greedy and free. Compared are their texts and the log-probabilities of their tokens.

repeat        the same prompt again, at once (live) and after all others (RAM): equal to the first
reproducible  --reproducible against --no-cache, over appended and edited prompts: equal
default       default mode against --no-cache over the same prompts: the rate is measured
peer          llama.cpp's own server, cache against cold, over the same prompts: the rate
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from machine import write_results
from models import MODELS, text_tokens
from servers import Ask, Reply, Server, Setup, headstart, llama_server
from workloads import Source, Tokens

REPLY_TOKENS = 6
CONTEXT_TOKENS = 1024
PROMPTS = 200
GRID = ("--block-size", "32", "--prefill-chunk", "64")
"""Both sides of `reproducible`: a grid finer than the default of 512 tokens, so that prompts of a
hundred tokens have something to restore."""
QUICK_PROMPTS = 8


@dataclass
class Tally:
    """How many pairs of replies differed, and what the cached side read."""

    pairs: int = 0
    texts_differ: int = 0
    logprobs_differ: int = 0
    largest_logprob_gap: float = 0.0
    prompt_tokens: int = 0
    read_tokens: int = 0
    tiers: Counter[str] = field(default_factory=Counter)

    def add(self, cached: Reply, other: Reply) -> None:
        self.pairs += 1
        self.texts_differ += cached.text != other.text
        self.logprobs_differ += cached.logprobs != other.logprobs
        same = len(common(cached, other))
        gaps = [abs(a - b) for a, b in zip(cached.logprobs[:same], other.logprobs[:same], strict=False)]
        self.largest_logprob_gap = max([self.largest_logprob_gap, *gaps])
        self.prompt_tokens += cached.prompt_tokens
        self.read_tokens += cached.read_tokens
        self.tiers[str(cached.facts.get("tier"))] += 1

    def to_json(self) -> dict[str, Any]:
        return {**vars(self), "tiers": dict(self.tiers)}


def common(a: Reply, b: Reply) -> list[float]:
    """Log-probabilities up to where the replies may be of other tokens: all, if the texts are equal."""
    count = len(a.logprobs) if a.text == b.text else 1
    return list(a.logprobs[:count])


@dataclass(frozen=True)
class Variant:
    """A prompt and the same appended to or edited."""

    base: Tokens
    changed: Tokens


def variants(source: Source, count: int) -> list[Variant]:
    """`count` prompts of 40 to 100 tokens; every second one appended to, the others edited inside."""
    found = []
    for index in range(count):
        base = source.take(40 + index * 37 % 60)
        if index % 2:
            found.append(Variant(base, base + source.take(10 + index * 13 % 30)))
        else:
            at = len(base) * (10 + index * 7 % 80) // 100
            found.append(Variant(base, base[:at] + source.take(5) + base[at + 5 :]))
    return found


def ask(server: Server, prompt: Tokens, *, use_cache: bool = True) -> Reply:
    return server.complete(Ask(prompt, REPLY_TOKENS, use_cache=use_cache, logprobs=True))


def repeat(setup: Setup, source: Source, count: int) -> dict[str, Any]:
    """Exact repeats, at once and after everything else."""
    at_once, later = Tally(), Tally()
    with headstart(setup) as server:
        prompts = [variant.base for variant in variants(source, count)]
        firsts = []
        for prompt in prompts:
            firsts.append(ask(server, prompt))
            at_once.add(ask(server, prompt), firsts[-1])
        for prompt, first in zip(prompts, firsts, strict=True):
            later.add(ask(server, prompt), first)
    return {"at once": at_once.to_json(), "later": later.to_json()}


def against_cold(
    setup: Setup, source: Source, count: int, both: tuple[str, ...] = (), warm_only: tuple[str, ...] = ()
) -> dict[str, Any]:
    """Changed prompts after their bases, against the same prompts with the cache off."""
    tally = Tally()
    with headstart(setup, *both, *warm_only) as warm, headstart(setup, *both, "--no-cache") as cold:
        for variant in variants(source, count):
            ask(warm, variant.base)
            tally.add(ask(warm, variant.changed), ask(cold, variant.changed))
    return tally.to_json()


def reproducible(setup: Setup, source: Source, count: int) -> dict[str, Any]:
    return against_cold(setup, source, count, GRID, ("--reproducible",))


def default(setup: Setup, source: Source, count: int) -> dict[str, Any]:
    return against_cold(setup, source, count)


def peer(setup: Setup, source: Source, count: int) -> dict[str, Any]:
    """llama.cpp's server: changed prompts after their bases, against the same sent cold."""
    tally = Tally()
    with llama_server(setup) as server:
        for variant in variants(source, count):
            cold = ask(server, variant.changed, use_cache=False)
            ask(server, variant.base)
            tally.add(ask(server, variant.changed), cold)
    return tally.to_json()


QUESTIONS = {"repeat": repeat, "reproducible": reproducible, "default": default, "peer": peer}


def lines(results: dict[str, Any]) -> list[str]:
    """The results as a Markdown table."""
    rows = [
        "| question | pairs | texts differ | log-probabilities differ | largest gap | tokens read / sent |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for question in QUESTIONS:
        found = results.get(question, {})
        for name, one in found.items() if "at once" in found else ((("", found),) if found else ()):
            rows.append(
                f"| {question} {name} | {one['pairs']} | {one['texts_differ']} | {one['logprobs_differ']} | "
                f"{one['largest_logprob_gap']:.2g} | {one['read_tokens']} / {one['prompt_tokens']} |"
            )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", choices=MODELS, default="smollm2")
    parser.add_argument("--only", nargs="+", choices=QUESTIONS, default=list(QUESTIONS))
    parser.add_argument("--prompts", type=int, default=PROMPTS, help="prompts a question (default: 200)")
    parser.add_argument("--threads", type=int, default=psutil.cpu_count(logical=False) or 1)
    parser.add_argument("--quick", action="store_true", help=f"{QUICK_PROMPTS} prompts a question")
    parser.add_argument("--out", type=Path, help="folder for the results (default: bench/results)")
    options = parser.parse_args()
    path = MODELS[options.model]()
    text, _ = text_tokens(path)
    setup = Setup(path, CONTEXT_TOKENS, options.threads)
    count = QUICK_PROMPTS if options.quick else options.prompts
    results: dict[str, Any] = {"model": options.model, "prompts": count, "threads": options.threads}
    for salt, question in enumerate(options.only):
        print(f"{question} ...", file=sys.stderr)
        results[question] = QUESTIONS[question](setup, Source(text, salt), count)
    print("\n".join(lines(results)))
    name = f"same_bits_{options.model}" + ("_quick" if options.quick else "")
    print(f"\n{write_results(name, results, *([options.out] if options.out else []))}", file=sys.stderr)


if __name__ == "__main__":
    main()
