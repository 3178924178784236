"""What does a store go through when its server is killed, again and again, at random moments?

    python bench/kill_loop.py [--kills 200] [--longest 3.0]

A child serves prompts on the toy engine without pause, three at a time, and is killed with SIGKILL
after a random time; every other life has a budget so small that it evicts all the time. After each
kill: every file with the name of an entry is read and checked; the store is opened; no temporary file
is left; what was answered a second or more before is there but for the open block (with plenty of
room); answers equal those of a run without a cache. The first thing that is not so ends the loop.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path

from machine import write_results

sys.path.insert(0, str(Path(__file__).parent.parent))
from tests.e2e.killing import PLENTY_BYTES, SMALL_BUDGET_BYTES, Cold, examine, live_and_die


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--longest", type=float, default=3.0, help="longest life in seconds")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    rng = random.Random(options.seed)
    cold = Cold()
    lives = []
    started_s = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="headstart-kill-") as base:
        for number in range(options.kills):
            evicting = number % 2 == 1
            budget = SMALL_BUDGET_BYTES if evicting else PLENTY_BYTES
            directory = Path(base) / ("evicting" if evicting else "plenty")
            life_s = rng.uniform(0.0, options.longest)
            killed = live_and_die(directory, budget, options.seed * 100_000 + number, life_s)
            found = examine(directory, budget, killed, cold, rng)
            lives.append({"evicting": evicting, "life_s": round(life_s, 3), **asdict(found)})
            print(f"{number + 1}: {lives[-1]}", flush=True)
    totals = {
        name: sum(life[name] for life in lives)
        for name in ("answers", "half_written", "adopted", "missing", "stray", "checked", "restored_tokens")
    }
    results = {
        "kills": len(lives),
        "seed": options.seed,
        "elapsed_s": round(time.monotonic() - started_s, 1),
        "problems": 0,
        "totals": totals,
        "slowest_open_s": round(max(life["open_s"] for life in lives), 3),
        "lives": lives,
    }
    print(write_results("kill_loop", results))


if __name__ == "__main__":
    main()
