"""How fast does state come back from the SSD, against plainly reading the same files?

    python bench/ssd_restore.py                             both parts, about 8 minutes on two cores
    python bench/ssd_restore.py --only files                a minute, 5 GB on the disk at most
    python bench/ssd_restore.py --only restart --restart smollm2:500

files: state as large as that of SmolLM2-135M (30 layers, keys and values of 3 heads of 64 halves: 23,040
bytes a token) in blocks of 256 tokens. Before every run the files are dropped from the page cache
(posix_fadvise DONTNEED; what lies below, a virtual machine's host for instance, may have a cache of its
own). Compared, in turns: a loop that reads each file into one buffer and does nothing with it, in the order
of the prompt; the same loop keeping what it reads, each file in memory of its own, as whoever wants the
state has to; and a fetch, which reads, checks every byte against its checksum, and stores the rows in the
RAM tier. `share` is the fetch's throughput over the first loop's, `share_kept` over the second's. `warm` is
the same with the files left in the page cache, where no medium hides the work of checking and copying.

restart: `headstart serve` reads a prompt cold, is stopped, and gets the same prompt again after a start, with
its files dropped from the page cache: time to the first token, tokens computed, and whether text and
log-probabilities are those of the first reply. A third start gets the prompt with its last 8 tokens
changed, so that no stored end helps.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from headstart.prefix.block import Plane, RowBytes, StateLayout
from headstart.prefix.cache import PrefixCache
from headstart.prefix.keys import token_bytes
from headstart.prefix.plan import PromptHints
from headstart.prefix.ssd_tier import SsdSettings, SsdTier
from headstart.prefix.tokens import TokenRun
from machine import write_results
from restart import forget, restart

BLOCK_TOKENS = 256
LAYERS, ROW_BYTES = 30, 384
LAYOUT = StateLayout(
    tuple(Plane(f"{kind}{layer}", ROW_BYTES) for layer in range(LAYERS) for kind in "kv"),
    checkpoint_bytes=0,
    context_tokens=1 << 20,
    vocab_size=49152,
)
NAMESPACE = b"n" * 48


def opened(directory: Path) -> tuple[SsdTier, PrefixCache]:
    tier = SsdTier(SsdSettings(directory, 1 << 40, reserve_bytes=0), LAYOUT, BLOCK_TOKENS)
    return tier, PrefixCache(LAYOUT, ram_bytes=8 << 30, block_tokens=BLOCK_TOKENS, ssd=tier)


def fill(directory: Path, prompt: TokenRun) -> list[Path]:
    """Stores random state for `prompt`; answers its files in order."""
    rng = np.random.default_rng(1)
    tier, cache = opened(directory)
    recorder = cache.recorder(NAMESPACE, prompt[:0])
    for at in range(0, len(prompt), BLOCK_TOKENS):
        planes = (rng.integers(0, 256, (BLOCK_TOKENS, ROW_BYTES), np.uint8) for _ in LAYOUT.planes)
        recorder.record(prompt[at : at + BLOCK_TOKENS], RowBytes(tuple(planes)), canonical=False)
        tier.poll()
    recorder.close()
    assert tier.flush(timeout_s=600) == 0
    blocks = tier.match(NAMESPACE, token_bytes(prompt)).blocks
    assert len(blocks) == len(prompt) // BLOCK_TOKENS
    paths = [tier.files.path(NAMESPACE, node.key) for node in blocks]
    tier.close()
    return paths


def plain_read(paths: list[Path]) -> float:
    """Seconds for reading all files, one after another, into one buffer."""
    buffer = bytearray(max(path.stat().st_size for path in paths))
    started_s = time.perf_counter()
    for path in paths:
        with path.open("rb", buffering=0) as file:
            while file.readinto(buffer):
                pass
    return time.perf_counter() - started_s


def kept_read(paths: list[Path]) -> float:
    """Seconds for reading all files, one after another, each into memory that was not used before."""
    kept = []
    started_s = time.perf_counter()
    for path in paths:
        with path.open("rb", buffering=0) as file:
            kept.append(np.empty(os.fstat(file.fileno()).st_size, np.uint8))
            left = memoryview(kept[-1]).cast("B")
            while count := file.readinto(left):
                left = left[count:]
    return time.perf_counter() - started_s


def restore(directory: Path, prompt: TokenRun) -> float:
    """Seconds from the plan to the last row in the RAM tier. The store is opened before."""
    tier, cache = opened(directory)
    longer = np.append(prompt, np.int32(0))
    woken = threading.Event()
    started_s = time.perf_counter()
    fetch = cache.fetch(cache.plan(NAMESPACE, longer, [], PromptHints()), woken.set)
    assert fetch is not None
    while not fetch.advance():
        woken.wait()
        woken.clear()
    elapsed_s = time.perf_counter() - started_s
    assert fetch.tokens == len(prompt) and fetch.reason is None
    fetch.close()
    tier.close()
    return elapsed_s


def measure(base: Path, tokens: int, repeats: int) -> dict[str, Any]:
    prompt = np.random.default_rng(tokens).integers(1, 49152, tokens).astype(np.int32)
    directory = base / str(tokens)
    paths = fill(directory, prompt)
    os.sync()
    nbytes = sum(path.stat().st_size for path in paths)
    result: dict[str, Any] = {"tokens": tokens, "bytes": nbytes}
    for kind in ("cold", "warm"):
        before: Callable[[list[Path]], None] = forget if kind == "cold" else lambda _: None
        plain, kept, fetched = [], [], []
        for _ in range(repeats):
            before(paths)
            plain.append(plain_read(paths))
            before(paths)
            kept.append(kept_read(paths))
            before(paths)
            fetched.append(restore(directory, prompt))
        plain_s, kept_s, fetched_s = map(statistics.median, (plain, kept, fetched))
        result[kind] = {
            "read_mb_per_s": round(nbytes / plain_s / 1e6),
            "restore_mb_per_s": round(nbytes / fetched_s / 1e6),
            "kept_mb_per_s": round(nbytes / kept_s / 1e6),
            "share": round(plain_s / fetched_s, 3),
            "share_kept": round(kept_s / fetched_s, 3),
            "restore_s": round(fetched_s, 4),
            "restore_s_all": [round(one, 4) for one in fetched],
            "read_s_all": [round(one, 4) for one in plain],
            "kept_s_all": [round(one, 4) for one in kept],
        }
    shutil.rmtree(directory)
    return result


def lines(results: dict[str, Any]) -> list[str]:
    """The results as Markdown tables."""
    rows = []
    if results.get("files"):
        rows += ["| tokens | bytes | plain read | read and kept | restore to RAM | share | share of kept |"]
        rows += ["|---:|---:|---:|---:|---:|---:|---:|"]
    for one in results.get("files", []):
        cold = one["cold"]
        rows.append(
            f"| {one['tokens']:,} | {one['bytes'] / 1e6:,.0f} MB | {cold['read_mb_per_s']:,} MB/s | "
            f"{cold['kept_mb_per_s']:,} MB/s | {cold['restore_mb_per_s']:,} MB/s | {cold['share']:.0%} | "
            f"{cold['share_kept']:.0%} |"
        )
    if results.get("restart"):
        rows += [
            "",
            "| model, tokens | TTFT cold | TTFT after restart | ratio | computed | SSD into engine |",
        ]
        rows[-1] += " same text, log-probabilities |"
        rows += ["|---|---:|---:|---:|---:|---:|---|"]
    for one in results.get("restart", []):
        name = f"{one['model']}, {one['prompt_tokens']:,}"
        same = f"{_yes(one['same_text'])}, {_yes(one['same_logprobs'])}"
        for what, kind in (("", "restart"), (", other end", "restart_changed_end")):
            warm = one[kind]
            rows.append(
                f"| {name}{what} | {one['cold']['first_token_s']:.2f} s | {warm['first_token_s']:.3f} s | "
                f"1/{one[f'cold_over_{kind}']:.0f} | {warm['computed_tokens']} | "
                f"{warm['into_engine_mb_per_s']} MB/s | {'' if what else same} |"
            )
    return rows


def _yes(value: bool) -> str:
    return "yes" if value else "no"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", choices=("files", "restart"), help="one part (default: both)")
    parser.add_argument("--tokens", default="1024,4096,16384,102400", help="of `files`")
    parser.add_argument("--repeats", type=int, default=5, help="of `files` (default: 5)")
    parser.add_argument("--restart", default="smollm2:7000,gemma3:20000", help="models and prompt tokens")
    parser.add_argument("--threads", type=int, default=psutil.cpu_count(logical=False) or 1)
    parser.add_argument("--directory", type=Path, help="where stores are made (default: temporary files)")
    parser.add_argument("--out", type=Path, help="folder for the results (default: bench/results)")
    options = parser.parse_args()
    results: dict[str, Any] = {"row_bytes": LAYOUT.row_bytes, "threads": options.threads}
    if options.only != "restart":
        results["files"] = []
        with tempfile.TemporaryDirectory(prefix="headstart-restore-", dir=options.directory) as base:
            for tokens in options.tokens.split(","):
                results["files"].append(measure(Path(base), int(tokens), options.repeats))
                print(json.dumps(results["files"][-1]), flush=True)
    if options.only != "files":
        results["restart"] = []
        for part in options.restart.split(","):
            name, _, tokens = part.partition(":")
            results["restart"].append(restart(name, int(tokens), options.threads, options.directory))
            print(json.dumps(results["restart"][-1]), flush=True)
    print("\n".join(lines(results)))
    print(write_results("ssd_restore", results, *([options.out] if options.out else [])))


if __name__ == "__main__":
    main()
