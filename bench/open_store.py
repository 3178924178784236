"""How long does it take to open a store of 1 k, 10 k and 100 k blocks?

    python bench/open_store.py                     about 3 minutes, most of it for writing 100 k files
    python bench/open_store.py --sizes 1000,10000  20 seconds

The blocks have 256 tokens and one byte of state a token: opening reads names and the catalog, never the
state. Shape: heads of 8 blocks, 100 conversations of 12 blocks behind each. Measured in a process of its
own each time: after an orderly end, whose seal holds; after a kill, when names and keys are looked
through; and once with the catalog gone, when it is made anew from all files (stores of up to `--rebuild`
blocks). Medians of `--repeats`. The folders and the catalog are in the page cache: after a start of the
machine it takes longer.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from headstart.prefix.block import Plane, StateLayout
from headstart.prefix.blockfile import EntryKind, Head
from headstart.prefix.catalog import Catalog, Listed
from headstart.prefix.keys import token_bytes
from headstart.prefix.seal import SEAL
from headstart.prefix.ssd import CATALOG, SsdFiles
from headstart.prefix.ssd_tier import SsdSettings, SsdTier
from machine import write_results

BLOCK_TOKENS = 256
HEAD_BLOCKS, CONVERSATION_BLOCKS, CONVERSATIONS = 8, 12, 100
LAYOUT = StateLayout((Plane("k", 1),), checkpoint_bytes=0, context_tokens=1 << 20, vocab_size=1 << 17)
NAMESPACE = b"n" * 48


def make_store(directory: Path, blocks: int) -> None:
    """Writes `blocks` blocks; what is flushed to the medium does not matter here."""
    os.fdatasync = lambda _: None  # type: ignore[assignment, misc]
    files = SsdFiles(directory)
    catalog = Catalog(directory / CATALOG)
    rng = np.random.default_rng(blocks)
    state = {"plane.k": np.zeros((BLOCK_TOKENS, 1), np.uint8)}
    left = blocks

    def chain(parent: bytes, level: int, length: int) -> tuple[bytes, int]:
        nonlocal left
        for _ in range(min(length, left)):
            tokens = rng.integers(0, 1 << 17, BLOCK_TOKENS).astype(np.int32)
            head = Head(EntryKind.BLOCK, NAMESPACE, parent, bytes(token_bytes(tokens)), level + 1)
            size = files.write(head, state)
            catalog.put([Listed.of(head.key, head, size, 0, time.time())])
            parent, level, left = head.key, level + 1, left - 1
        return parent, level

    while left:
        top, level = chain(NAMESPACE, 0, HEAD_BLOCKS)
        for _ in range(CONVERSATIONS):
            chain(top, level, CONVERSATION_BLOCKS)
    catalog.close()
    files.close()


def open_once(directory: Path) -> dict[str, Any]:
    """Opens the store in this process."""
    tier = SsdTier(SsdSettings(directory, 1 << 40, reserve_bytes=0), LAYOUT, BLOCK_TOKENS)
    opened = tier.opened
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    tier.close()
    return {
        "open_s": round(opened.open_s, 3),
        "entries": opened.entries,
        "adopted": opened.adopted,
        "peak_bytes": peak,
    }


def in_a_process(directory: Path) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, __file__, "--open", str(directory)], capture_output=True, text=True, check=True
    )
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def measure(blocks: int, repeats: int, *, rebuild: bool) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="headstart-open-") as base:
        directory = Path(base)
        make_store(directory, blocks)
        in_a_process(directory)
        opened = [in_a_process(directory) for _ in range(repeats)]
        killed = []
        for _ in range(repeats):
            (directory / SEAL).unlink()
            killed.append(in_a_process(directory))
        assert all(one["entries"] == blocks and not one["adopted"] for one in [*opened, *killed])
        result = {
            "blocks": blocks,
            "after_an_orderly_end": spread(opened),
            "after_a_kill": spread(killed),
            "peak_bytes": opened[0]["peak_bytes"],
            "catalog_bytes": (directory / CATALOG).stat().st_size,
            "rebuilt_s": None,
        }
        if rebuild:
            for path in directory.glob(f"{CATALOG}*"):
                path.unlink()
            rebuilt = in_a_process(directory)
            assert rebuilt["adopted"] == blocks
            result["rebuilt_s"] = rebuilt["open_s"]
        return result


def spread(opened: list[dict[str, Any]]) -> dict[str, float]:
    times = [one["open_s"] for one in opened]
    return {"median_s": statistics.median(times), "best_s": min(times), "worst_s": max(times)}


def lines(results: dict[str, Any]) -> list[str]:
    """The results as a Markdown table."""
    rows = ["| blocks | after an orderly end | after a kill | with the catalog gone | memory |"]
    rows += ["|---:|---:|---:|---:|---:|"]
    for one in results["stores"]:
        rebuilt = "" if one["rebuilt_s"] is None else f"{one['rebuilt_s']:.2f} s"
        rows.append(
            f"| {one['blocks']:,} | {one['after_an_orderly_end']['median_s']:.2f} s | "
            f"{one['after_a_kill']['median_s']:.2f} s | {rebuilt} | {one['peak_bytes'] / 1e6:,.0f} MB |"
        )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sizes", default="1000,10000,100000")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--rebuild", type=int, default=10_000, help="largest store that is rebuilt (10000)")
    parser.add_argument("--open", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path, help="folder for the results (default: bench/results)")
    options = parser.parse_args()
    if options.open is not None:
        print(json.dumps(open_once(options.open)))
        return
    stores = []
    for size in map(int, options.sizes.split(",")):
        stores.append(measure(size, options.repeats, rebuild=size <= options.rebuild))
        print(json.dumps(stores[-1]), flush=True)
    results = {"block_tokens": BLOCK_TOKENS, "threads": 1, "stores": stores}
    print("\n".join(lines(results)))
    print(write_results("open_store", results, *([options.out] if options.out else [])))


if __name__ == "__main__":
    main()
