"""How long does planning a long prompt take, and what does the index cost in memory?

    python bench/prefix_index.py [--sizes 10000,100000,1000000] [--out bench/results/prefix_index.json]

The index holds blocks without rows. Shape of the store: heads of 8 blocks (system prompts), each
with conversations of 12 blocks behind it; every tenth conversation parts inside a block from the
one before. One more conversation is as long as the prompt that is planned. Times are the median
and the worst of `--repeats` calls of PrefixCache.plan, which include turning the prompt into bytes.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import platform
import statistics
import sys
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from headstart.prefix.block import Plane, StateLayout
from headstart.prefix.cache import PrefixCache
from headstart.prefix.keys import TOKEN_BYTES, token_bytes
from headstart.prefix.plan import LiveView, PromptHints, StopKind
from headstart.prefix.tokens import TokenRun
from headstart.prefix.tree import Node

BLOCK_TOKENS = 256
PROMPT_TOKENS = 128_000
VOCABULARY = 150_000
HEAD_BLOCKS = 8
CONVERSATION_BLOCKS = 12
CONVERSATIONS_PER_HEAD = 100
NAMESPACE = b"bench"
CHECKPOINT_EVERY = 8
PLANES = (Plane("k", 2048), Plane("v", 2048))
LAYOUTS = {
    "dense": StateLayout(PLANES, 0, 1 << 20, VOCABULARY),
    "recurrent": StateLayout(PLANES, 1 << 20, 1 << 20, VOCABULARY),
}


class Filler:
    """Fills the index of a cache with random conversations."""

    def __init__(self, cache: PrefixCache, seed: int) -> None:
        self._held = cache._held
        self._random = np.random.default_rng(seed)
        self.blocks = 0
        self.token_bytes = 0

    def run(self, blocks: int) -> TokenRun:
        return self._random.integers(0, VOCABULARY, blocks * BLOCK_TOKENS, dtype=np.int32)

    def chain(self, parent: Node, tokens: TokenRun) -> Node:
        """Attaches `tokens` block by block; the last becomes an eviction candidate."""
        data = token_bytes(tokens)
        for at in range(0, len(data), BLOCK_TOKENS * TOKEN_BYTES):
            block = data[at : at + BLOCK_TOKENS * TOKEN_BYTES]
            parent = self._held.tree.attach(parent, block)
            self.blocks += 1
            self.token_bytes += len(block)
        self._held.queue.offer(parent)
        return parent

    def fill(self, target: int) -> None:
        """Adds heads and conversations until the index holds `target` blocks."""
        while self.blocks < target:
            head = self.chain(self._held.tree.root(NAMESPACE), self.run(HEAD_BLOCKS))
            before = self.run(CONVERSATION_BLOCKS)
            for number in range(CONVERSATIONS_PER_HEAD):
                tokens = self.run(CONVERSATION_BLOCKS)
                if number % 10 == 0:
                    tokens[:100] = before[:100]
                self.chain(head, tokens)
                before = tokens
                if self.blocks >= target:
                    return

    def fill_prompt(self, prompt: TokenRun, *, checkpoints: bool) -> None:
        node = self.chain(
            self._held.tree.root(NAMESPACE), prompt[: len(prompt) // BLOCK_TOKENS * BLOCK_TOKENS]
        )
        while checkpoints and node.parent is not None:
            if node.level % CHECKPOINT_EVERY == 0:
                self._held.add_mark(node.parent, node.tokens, StopKind.GRID, b"checkpoint", canonical=False)
            node = node.parent


def timed(call: Callable[[], object], repeats: int) -> dict[str, float]:
    """Median and worst of `repeats` calls, in milliseconds."""
    call()
    samples = []
    for _ in range(repeats):
        start = time.perf_counter()
        call()
        samples.append((time.perf_counter() - start) * 1e3)
    return {"median_ms": round(statistics.median(samples), 3), "worst_ms": round(max(samples), 3)}


def measure_plans(size: int, layout_name: str, repeats: int) -> dict[str, Any]:
    """Plans against `size` blocks: all of the prompt matching, parting in its middle, inside the
    first block, and unknown; with and without live sequences."""
    cache = PrefixCache(LAYOUTS[layout_name], ram_bytes=1 << 50, block_tokens=BLOCK_TOKENS)
    filler = Filler(cache, seed=size)
    prompt = filler.run(PROMPT_TOKENS // BLOCK_TOKENS)
    start = time.perf_counter()
    filler.fill_prompt(prompt, checkpoints=layout_name == "recurrent")
    filler.fill(size)
    filled_s = time.perf_counter() - start
    prompts = {"all_matching": prompt, "unknown": filler.run(PROMPT_TOKENS // BLOCK_TOKENS)}
    for name, at in (("parts_in_the_middle", PROMPT_TOKENS // 2 + 77), ("parts_in_first_block", 77)):
        other = prompt.copy()
        other[at] += 1
        prompts[name] = other
    live = [LiveView(seq, NAMESPACE, prompt[:-5].copy(), 0, busy=False) for seq in range(4)]
    result: dict[str, Any] = {"blocks": filler.blocks, "layout": layout_name, "fill_s": round(filled_s, 2)}
    for name, tokens in prompts.items():
        result[name] = timed(lambda run=tokens: cache.plan(NAMESPACE, run, [], PromptHints()), repeats)
    result["all_matching_4_live"] = timed(lambda: cache.plan(NAMESPACE, prompt, live, PromptHints()), repeats)
    return result


def measure_memory(blocks: int) -> dict[str, Any]:
    """Bytes a block that the index and the eviction queue take beyond the token ids, traced."""
    cache = PrefixCache(LAYOUTS["dense"], ram_bytes=1 << 50, block_tokens=BLOCK_TOKENS)
    filler = Filler(cache, seed=1)
    gc.collect()
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    filler.fill(blocks)
    gc.collect()
    after = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    beyond = after - before - filler.token_bytes
    return {"blocks": filler.blocks, "bytes_per_block_beyond_tokens": round(beyond / filler.blocks, 1)}


def machine() -> dict[str, Any]:
    model = platform.processor() or platform.machine()
    facts = Path("/proc/cpuinfo")
    if facts.exists():
        names = [
            line.split(":", 1)[1].strip() for line in facts.read_text().splitlines() if "model name" in line
        ]
        model = names[0] if names else model
    return {
        "cpu": model,
        "cores": os.cpu_count(),
        "load_1min": round(os.getloadavg()[0], 2),
        "python": sys.version.split()[0],
        "numpy": np.__version__,
        "system": platform.platform(),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--sizes", default="10000,100000,1000000")
    parser.add_argument("--repeats", type=int, default=30)
    parser.add_argument("--memory-blocks", type=int, default=200_000)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "prefix_index.json")
    options = parser.parse_args()
    result: dict[str, Any] = {
        "machine": machine(),
        "prompt_tokens": PROMPT_TOKENS,
        "block_tokens": BLOCK_TOKENS,
        "memory": measure_memory(options.memory_blocks),
        "plans": [],
    }
    print(json.dumps(result["memory"]))
    for size in (int(text) for text in options.sizes.split(",")):
        for layout_name in LAYOUTS:
            measured = measure_plans(size, layout_name, options.repeats)
            print(json.dumps(measured))
            result["plans"].append(measured)
            gc.collect()
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
