"""How fast `headstart explain` reads a server's log, and how much memory that takes.

    python bench/log_speed.py        two minutes

Writes logs of turns to a temporary directory, 1000 MB of llama-server's (at the verbosity at which it tells
the most), then of Ollama's, reads each in a process of its own, and prints MB/s and the peak of memory.
A log of a tenth of the size tells whether memory grows with the log.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from machine import write_results

READ = """
import json, resource, sys, time
from headstart.blame.log_findings import findings_of
from headstart.blame.log_report import report_of
from headstart.blame.logs.reading import LogReader, events_of
reader = LogReader()
start = time.perf_counter()
with open(sys.argv[1], "rb") as file:
    report = report_of(events_of(file, reader))
seconds = time.perf_counter() - start
findings = [one.cause for one in findings_of(report)]
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
told = {"seconds": seconds, "turns": report.totals.turns, "format": reader.format, "peak_rss_bytes": peak}
print(json.dumps({**told, "findings": findings}))
"""


def llama_turn(n: int) -> str:
    """A turn as llama-server logs it: 60 lines, a gap every seventh time."""
    total = 20_000 + n % 1000 * 20
    kept = total - 4_000 if n % 7 == 0 else total - 40
    at = f"{n // 60000}.{n // 1000 % 60:02d}.{n % 1000:03d}.{n * 37 % 1000:03d}"
    slot = f"{at} I slot {{}}: id  0 | task {n} | "
    lines = [
        f"{at} I slot get_availabl: id  0 | task -1 | selected slot by LCP similarity, "
        f"f_sim_best = {(total - 40) / total:.3f} (> 0.100 thold), f_keep = 0.998",
        slot.format("launch_slot_") + "processing task, is_child = 0",
        slot.format("  operator()") + f"new prompt, n_ctx_slot = 65536, n_keep = 0, task.n_tokens = {total}",
        slot.format("  operator()")
        + f"checking checkpoint with [{kept - 1}, {kept - 1}] against {total - 40}...",
        slot.format("  operator()")
        + f"restored context checkpoint (pos_min = {kept - 1}, pos_max = {kept - 1}, "
        f"n_tokens = {kept}, n_past = {kept}, size = 62.813 MiB)",
        slot.format("  operator()") + f"cached n_tokens = {kept}, memory_seq_rm [{kept}, end)",
    ]
    step = max(1, (total - kept) // 48)
    lines += [
        slot.format("print_timing")
        + f"prompt processing, n_tokens = {kept + step * k:6d}, progress = {k / 48:.2f}, "
        f"t = {k * 0.3:6.2f} s / 512.25 tokens per second"
        for k in range(48)
    ]
    lines += [
        slot.format("create_check")
        + f"created context checkpoint {n % 32 + 1} of 32 (pos_min = {total - 5}, "
        f"pos_max = {total - 5}, n_tokens = {total - 4}, size = 62.813 MiB)",
        slot.format("print_timing")
        + f"prompt eval time = {(total - kept) * 1.9:11.2f} ms / {total - kept:5d} "
        "tokens (    1.90 ms per token,   526.32 tokens per second)",
        slot.format("print_timing")
        + "       eval time =    2246.67 ms /   120 tokens (   18.72 ms per token,"
        "    53.41 tokens per second)",
        slot.format("     release") + f"stop processing: n_tokens = {total + 119}, truncated = 0",
    ]
    return "\n".join(lines) + "\n"


def ollama_turn(n: int) -> str:
    """A turn of Ollama's own runner, with its progress and its access line."""
    total = 20_000 + n % 1000 * 20
    matched, cached = total - 900, (total - 900) // 8192 * 8192 - 1
    head = (
        f"time=2026-09-04T{n // 3600 % 24:02d}:{n // 60 % 60:02d}:{n % 60:02d}.605+09:00 level=INFO source="
    )
    lines = [
        f'{head}prefix_cache.go:125 msg="cache hit" total={total} matched={matched} cached={cached} '
        f"left={total - cached}"
    ]
    lines += [
        f'{head}pipeline.go:223 msg="Prompt processing progress" processed={done} total={total - cached}'
        for done in (*(k * 512 for k in range(11)), total - cached)
    ]
    lines.append('[GIN] 2026/09/04 - 14:08:06 | 200 |  2.529803ms |  127.0.0.1 | POST     "/api/chat"')
    return "\n".join(lines) + "\n"


TURNS = {"llama-server": llama_turn, "ollama": ollama_turn}


def write(path: Path, nbytes: int, turn_of: str) -> None:
    """A log of that size."""
    with path.open("w") as file:
        written, n = 0, 0
        while written < nbytes:
            text = TURNS[turn_of](n)
            file.write(text)
            written, n = written + len(text), n + 1


def measured(megabytes: int, turn_of: str) -> dict[str, Any]:
    """What reading a log of that size took."""
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "server.log"
        write(log, megabytes * 1_000_000, turn_of)
        done = subprocess.run(
            [sys.executable, "-c", READ, str(log)], check=True, capture_output=True, text=True
        )
        told = json.loads(done.stdout)
        return {**told, "bytes": log.stat().st_size, "mb_per_s": log.stat().st_size / 1e6 / told["seconds"]}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--megabytes", type=int, default=1000, help="size of the larger logs (default: 1000)")
    parser.add_argument("--out", type=Path, help="folder for the results (default: bench/results)")
    flags = parser.parse_args()
    logs = [measured(size, turn_of) for turn_of in TURNS for size in (flags.megabytes // 10, flags.megabytes)]
    for one in logs:
        print(
            f"{one['bytes'] / 1e6:,.0f} MB of {one['format']} in {one['seconds']:.2f} s: "
            f"{one['mb_per_s']:.0f} MB/s, {one['turns']:,} turns, "
            f"peak RSS {one['peak_rss_bytes'] / 1e6:.0f} MB; findings: {', '.join(one['findings'])}"
        )
    write_results("log_speed", {"logs": logs}, *([flags.out] if flags.out else []))


if __name__ == "__main__":
    main()
