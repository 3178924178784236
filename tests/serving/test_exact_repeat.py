"""Exact repeats through the scheduler on a real hybrid model: the first reply again, bit for bit."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from headstart.engines.llamacpp.engine import load
from headstart.engines.llamacpp.options import LlamaCppOptions
from headstart.prefix.tokens import TokenRun
from headstart.serving.request import Delta
from tests.serving.harness import Server


def branching_prompts(count: int) -> list[TokenRun]:
    """Prompts of which every second one parts from the one before it after 1 to 3 tokens: what it
    replays is read in a chunk too short for the arithmetic of long ones."""
    random = np.random.default_rng(5)
    prompts: list[TokenRun] = []
    for i in range(count // 2):
        trunk = random.integers(300, 4000, 80).astype(np.int32)
        branch = random.integers(300, 4000, 70).astype(np.int32)
        prompts += [trunk, np.concatenate([trunk[: 1 + i % 3], branch])]
    return prompts


def test_a_hybrid_repeats_also_what_it_first_read_by_replaying(tiny_qwen35: Path) -> None:
    """A replay computes rows anew, in other chunks; the ones stored first are put back in their
    place, so that the reply does not rest on rows that no later prompt will find."""
    engine = load(tiny_qwen35, LlamaCppOptions(ctx_size=512, max_sequences=1, threads=1))
    try:
        with Server(engine, block_tokens=32, checkpoint_interval_tokens=0) as server:

            def ask(prompt: TokenRun) -> tuple[list[float | None], int, int]:
                reply, done = server.ask(prompt, 8, top_logprobs=0)
                bits = [event.logprob for event in reply.events if isinstance(event, Delta)]
                return bits, done.report.restored, done.report.replayed

            prompts = branching_prompts(32)
            first = [ask(prompt) for prompt in prompts]
            assert sum(replayed > 0 for _, _, replayed in first) > 12, "nothing was replayed"
            for prompt, (bits, _, _) in zip(prompts, first, strict=True):
                again, restored, _ = ask(prompt)
                assert restored == len(prompt)
                assert again == bits
    finally:
        engine.shutdown()
