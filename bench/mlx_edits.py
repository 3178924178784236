"""Does an edit of a long prompt go back to its own token, on every kind of model of the MLX engine?

    python bench/mlx_edits.py            about 15 minutes
    python bench/mlx_edits.py --quick    a prompt of 1,500 tokens, edits around 1,024: two minutes
    python bench/mlx_edits.py --check    reads every edited prompt cold too, and compares scores

The report headstart began with: servers that restored a multiple of thousands of tokens and read up to 8,192
again. A prompt of 20,000 tokens is read once; then prompts that part from it at 8,000, 8,191, 8,192, 8,193,
12,000 (where a message starts) and 19,999, each place twice with another token, and go on for AFTER tokens.
The models are tiny and random, the cache is the real one, in memory, with a checkpoint every 2,048 tokens.

Promised: gap 0 with attention, windows and chunks; with recurrent layers gap 0 at the second visit and where
a message starts, and less than the checkpoint interval at the first. The exit status is 1 where it is not so.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Collection, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from headstart.engines.base import Engine
from headstart.engines.mlx.engine import load
from headstart.engines.mlx.options import MlxOptions
from headstart.prefix.cache import PrefixCache
from headstart.prefix.keys import namespace_key
from headstart.prefix.plan import PromptHints
from headstart.prefix.tokens import TokenRun
from machine import write_results

sys.path.insert(0, str(Path(__file__).parent.parent))
from tests.engines.cached import Answer, CachedReader
from tests.engines.equality import cold_logits, compare, random_tokens
from tests.fixtures.mlx_models import MlxModels

MODELS = (
    *("llama", "gemma3_text", "gpt_oss", "llama4", "qwen3_next", "qwen3_5", "lfm2", "mamba2", "falcon_h1"),
    "deepseek_v32",
)
AFTER = 64
"""Tokens a prompt goes on after its edit, where the long prompt does."""


@dataclass(frozen=True)
class Sizes:
    """A prompt of `tokens`, edited at `edits`, a message at `message`, checkpoints every `interval`."""

    tokens: int
    edits: tuple[int, ...]
    message: int
    interval: int
    chunk: int


FULL = Sizes(20_000, (8_000, 8_191, 8_192, 8_193, 12_000, 19_999), 12_000, 2_048, 512)
QUICK = Sizes(1_500, (1_000, 1_023, 1_024, 1_025, 1_200, 1_499), 1_200, 256, 128)


@dataclass(frozen=True)
class Edit:
    """What one edited prompt cost. `gap`: tokens before the edit that were read again. `difference`: largest
    of any score to a cold run's, None where none was made."""

    model: str
    recurrent: bool
    at: int
    visit: int
    restored: int
    gap: int
    tier: str
    seconds: float
    kept: bool
    difference: float | None = None


def edits(name: str, engine: Engine, sizes: Sizes, check: Collection[int] = ()) -> Iterator[Edit]:
    """Reads the long prompt, then every edit of it twice; those at the places `check` cold too."""
    cache = PrefixCache(
        engine.layout, ram_bytes=4 << 30, block_tokens=256, checkpoint_interval=sizes.interval
    )
    random = np.random.default_rng(3)
    chunk = min(sizes.chunk, engine.max_step_tokens)
    namespace = namespace_key(engine.facts.parts, "")
    asking = CachedReader(engine, cache, namespace, random, keep_live=1, smallest=chunk, largest=chunk)
    hints = PromptHints(message_starts=(sizes.message,))
    base = random_tokens(random, engine, sizes.tokens)
    asking.ask(base, hints)
    for at in sizes.edits:
        for visit in (1, 2):
            prompt = edited(base, at, visit)
            start_s = time.perf_counter()
            answer = asking.ask(prompt, hints)
            took_s = time.perf_counter() - start_s
            difference = against_cold(engine, prompt, answer, chunk) if at in check else None
            gap = answer.plan.divergence - answer.restored
            recurrent = engine.layout.recurrent
            limit = sizes.interval - 1 if recurrent and visit == 1 and at != sizes.message else 0
            kept = answer.plan.divergence == at and gap <= limit
            tier = str(answer.plan.tier)
            yield Edit(
                name, recurrent, at, visit, answer.restored, gap, tier, round(took_s, 3), kept, difference
            )
    asking.close()


def edited(base: TokenRun, at: int, visit: int) -> TokenRun:
    """`base` up to `at`, another token there, a new one each visit, and AFTER more of `base`."""
    other = np.int32((int(base[at]) + visit) % 4000 + 64)
    return np.concatenate([base[:at], [other], base[at + 1 : at + 1 + AFTER]]).astype(np.int32)


def against_cold(engine: Engine, prompt: TokenRun, answer: Answer, chunk: int) -> float:
    whole, rest = divmod(len(prompt), chunk)
    cold = cold_logits(engine, prompt, (chunk,) * whole + ((rest,) if rest else ()))
    return compare(answer.logits, cold).difference


def measured(name: str, folder: Path, sizes: Sizes, check: Collection[int] = ()) -> list[Edit]:
    """All edits of the model `name`, said on stderr as they come."""
    options = MlxOptions(ctx_size=sizes.tokens + AFTER, max_step_tokens=sizes.chunk, max_sequences=3)
    engine = load(MlxModels(folder)(name), options)
    found = []
    for edit in edits(name, engine, sizes, check):
        print(edit, file=sys.stderr)
        found.append(edit)
    engine.shutdown()
    return found


def table(found: list[Edit]) -> list[str]:
    """A row a model and place: gap and seconds of both visits."""
    checked = any(edit.difference is not None for edit in found)
    head = "| model | edit at | first visit: gap | s | second visit: gap | s |"
    lines = [head + (" furthest from cold |" if checked else ""), "|---|---:|---:|---:|---:|---:|"]
    lines[1] += "---:|" if checked else ""
    for first, second in zip(found[::2], found[1::2], strict=True):
        cells = [first.model, f"{first.at:,}"]
        for edit in (first, second):
            cells += [f"{edit.gap:,}" + ("" if edit.kept else " (!)"), f"{edit.seconds:.2f}"]
        if checked:
            cells.append(f"{max(edit.difference or 0.0 for edit in (first, second)):.2g}")
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--check", action="store_true", help="read every edited prompt cold too")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--out", type=Path, help="folder for the results (default: bench/results)")
    options = parser.parse_args()
    sizes = QUICK if options.quick else FULL
    found: list[Edit] = []
    seconds: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as folder:
        for name in options.models:
            start_s = time.perf_counter()
            found += measured(name, Path(folder), sizes, sizes.edits if options.check else ())
            seconds[name] = round(time.perf_counter() - start_s, 1)
    results: dict[str, Any] = {"sizes": asdict(sizes), "after": AFTER, "seconds": seconds}
    results["edits"] = [asdict(edit) for edit in found]
    print("\n".join(table(found)))
    print(write_results("mlx_edits", results, *([options.out] if options.out else [])))
    broken = [edit for edit in found if not edit.kept]
    print(f"{len(found)} edits, {len(broken)} not as promised")
    return 1 if broken else 0


if __name__ == "__main__":
    raise SystemExit(main())
