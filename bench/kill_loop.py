"""What does a store go through when its server is killed, again and again, at random moments?

    python bench/kill_loop.py                 200 kills, about 6 minutes on two cores
    python bench/kill_loop.py --kills 10      half a minute

Nine kills of ten are of `headstart serve` itself, with a small random-weight GGUF model and one thread,
under three clients; a tenth of them while it starts. The tenth is of the toy engine's child process of
tests/e2e/killing.py, whose state has window and recurrent layers, checkpoints and logits too. Half of
the kills are done to stores with plenty of room, the other half, at the same time, to stores whose budget
is so small that they evict all the time. A store starts anew after 20 kills. After each kill:

- every file with the name of an entry is read and checked (`headstart cache verify`): none may be bad;
- what the server had reported as saved (headstart_ssd_saved_entries) must be there as files, and what was
  there before this life must still be there (plenty of room);
- of each request, how far its tokens had been computed at which time is known from the moments at which its
  reply came in. The first whole block that is not there must have been completed less than a second
  (`--flush-interval`) before the kill; the open block at the end may be missing (plenty of room);
- files and catalog may not take up more than the budget (evicting);
- the next start must succeed, and leave no temporary file;
- of the requests that were killed or answered two, and a new one, are asked again: text and
  log-probabilities must equal those of a server that runs without a cache (`--reproducible`, greedy).

What is not so is printed and counted as a problem; the exit status is 1 then.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import Any

from killed_server import BUDGET_BYTES, Clean, KilledStore, clean_server
from machine import write_results

sys.path.insert(0, str(Path(__file__).parent.parent))
from tests.e2e.killing import PLENTY_BYTES, SMALL_BUDGET_BYTES, Cold, examine, live_and_die
from tests.fixtures.gguf_models import build_llama

KILLS_A_STORE = 20
TOY_EVERY = 10


class ToyStore:
    """The store of the toy engine's child, killed and examined as in tests/e2e/test_kill.py."""

    def __init__(self, directory: Path, *, evicting: bool) -> None:
        self._directory = directory
        self._budget_bytes = SMALL_BUDGET_BYTES if evicting else PLENTY_BYTES
        self._cold = Cold()

    def kill_once(self, seed: int, life_s: float) -> dict[str, Any]:
        rng = random.Random(seed)
        try:
            killed = live_and_die(self._directory, self._budget_bytes, seed, life_s)
            found = examine(self._directory, self._budget_bytes, killed, self._cold, rng)
        except AssertionError as problem:
            return {"problems": [str(problem)]}
        return {**asdict(found), "problems": []}

    def end(self) -> list[str]:
        return []


def lives(
    base: Path, model: Path, clean: Clean, options: argparse.Namespace, deadline_s: float, *, evicting: bool
) -> list[dict[str, Any]]:
    """All kills of one kind of store, or as many as can be done until `deadline_s`."""
    kind = "evicting" if evicting else "plenty"
    rng = random.Random(f"{options.seed} {kind}")
    found: list[dict[str, Any]] = []
    stores: dict[str, Any] = {}

    def renew(number: int) -> list[str]:
        problems = [problem for store in stores.values() for problem in store.end()]
        place = base / f"{kind}-{number}"
        stores["gguf"] = KilledStore(place / "gguf", model, clean, rng, evicting=evicting)
        stores["toy"] = ToyStore(place / "toy", evicting=evicting)
        return problems

    for number in range(options.kills // 2 + (options.kills % 2 if evicting else 0)):
        if time.monotonic() > deadline_s:
            break
        problems = renew(number) if number % KILLS_A_STORE == 0 else []
        engine = "toy" if number % TOY_EVERY == TOY_EVERY - 1 else "gguf"
        life_s = rng.uniform(0.0, options.longest)
        started_s = time.monotonic()
        one = stores[engine].kill_once(options.seed * 100_000 + number, life_s)
        one["problems"] += problems
        one |= {"life_s": round(life_s, 3), "elapsed_s": round(time.monotonic() - started_s, 2)}
        found.append({"store": kind, "engine": engine, **one})
        print(f"{kind} {number + 1}: {found[-1]}", flush=True)
    ends = [problem for store in stores.values() for problem in store.end()]
    found.append({"store": kind, "engine": "gguf", "problems": ends, "end": True})
    return found


def summary(found: list[dict[str, Any]]) -> dict[str, Any]:
    """Sums over all kills. `landed`: in how many of them something of that kind was under way."""
    killed = [one for one in found if "end" not in one]
    servers = [one for one in killed if one["engine"] == "gguf"]

    def total(name: str, among: list[dict[str, Any]] = killed) -> int:
        return sum(one.get(name, 0) for one in among)

    return {
        "kills": len(killed),
        "kills_of_servers": len(servers),
        "problems": [problem for one in found for problem in one["problems"]],
        "landed": {
            "starting": total("starting"),
            "prefill": sum(one.get("in_prefill", 0) > 0 for one in servers),
            "decode": sum(one.get("in_decode", 0) > 0 for one in servers),
            "writing": sum(one.get("half_written", 0) > 0 for one in killed),
            "after evictions": sum(one.get("evicted", 0) > 0 for one in servers),
        },
        "files_checked": total("files"),
        "half_written": total("half_written"),
        "reported_saved": total("reported_saved"),
        "answers_compared": total("checked"),
        "restored_tokens": total("restored_tokens"),
        "missing_tokens_at_most": max((one.get("missing_tokens", 0) for one in servers), default=0),
        "oldest_missing_s": max((one.get("oldest_missing_s", 0.0) for one in servers), default=0.0),
        "most_budget_used": max((one.get("used_bytes", 0) for one in servers), default=0) / BUDGET_BYTES,
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--longest", type=float, default=1.6, help="longest life in seconds (default: 1.6)")
    parser.add_argument("--minutes", type=float, default=7.5, help="end after that long, done or not (7.5)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, help="folder for the results (default: bench/results)")
    options = parser.parse_args()
    started_s = time.monotonic()
    found: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix="headstart-kill-") as name:
        base = Path(name)
        model = build_llama(base / "tiny-llama.gguf")
        with clean_server(model) as clean:
            deadline_s = started_s + 60 * options.minutes
            with ThreadPoolExecutor(2) as pool:
                both = [
                    pool.submit(lives, base, model, clean, options, deadline_s, evicting=evicting)
                    for evicting in (False, True)
                ]
                found += [one for future in both for one in future.result()]
    results = summary(found)
    results |= {
        "kills_wanted": options.kills,
        "threads": 1,
        "seed": options.seed,
        "elapsed_s": round(time.monotonic() - started_s, 1),
        "lives": found,
    }
    print({name: value for name, value in results.items() if name != "lives"})
    print(write_results("kill_loop", results, *([options.out] if options.out else [])))
    if results["problems"]:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
