"""Puts the measured tables into README.md, between its bench markers.

python bench/readme.py
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import endurance
import open_store
import same_bits
import speed
import ssd_restore
import store_cost
from machine import RESULTS
from prefix_reuse import Record, summary

README = Path(__file__).parent.parent / "README.md"


def reuse_table(records: list[Record]) -> str:
    """Tokens read and warm TTFT of both servers, a row a model and workload."""
    servers = list(dict.fromkeys(record.server for record in records))
    heads = ["model", "workload", "sent", "perfect", *(f"{name} reads" for name in servers)]
    heads += [f"{name} warm TTFT" for name in servers]
    lines = ["| " + " | ".join(heads) + " |", "|---|---|" + "---:|" * (len(heads) - 2)]
    for model, workload in dict.fromkeys((record.model, record.workload) for record in records):
        mine = [record for record in records if (record.model, record.workload) == (model, workload)]
        sums = [summary([record for record in mine if record.server == server]) for server in servers]
        row = [model, workload, f"{sums[0]['sent']:,}", f"{sums[0]['perfect']:,}"]
        row += [f"{one['read']:,}" for one in sums] + [f"{one['warm_s'] * 1e3:,.0f} ms" for one in sums]
        lines.append("| " + " | ".join(row) + " |")
    return "\n".join(lines)


def kill_lines(results: dict[str, Any]) -> list[str]:
    """What the kills have shown, as a Markdown table."""
    landed = ", ".join(f"{what} {count}" for what, count in results["landed"].items())
    return [
        "| what | |",
        "|---|---|",
        f"| kills | {results['kills']} |",
        f"| moments they hit (several at a time) | {landed} |",
        f"| files read and checked | {results['files_checked']:,} |",
        f"| writes that were broken off | {results['half_written']} |",
        f"| answers compared with a clean server's | {results['answers_compared']:,} |",
        f"| most tokens of a request that were lost | {results['missing_tokens_at_most']} |",
        f"| oldest whole block that was lost | {results['oldest_missing_s'] * 1e3:.0f} ms before the kill |",
        f"| problems | {len(results['problems'])} |",
    ]


SSD = {
    "ssd_restore": ("Restore from the SSD", ssd_restore.lines),
    "store_cost_smollm2": ("Cost of storing, SmolLM2", store_cost.lines),
    "store_cost_gemma3": ("Cost of storing, Gemma 3", store_cost.lines),
    "open_store": ("Opening a store", open_store.lines),
    "endurance": ("Bytes written for a byte of new state", endurance.lines),
    "kill_loop": ("Killed at random moments", kill_lines),
}
"""Tables about the SSD tier, by the name of their results."""


def about(results: dict[str, Any]) -> str:
    """One sentence on what was used."""
    machine = results["machine"]
    versions = ", ".join(
        f"{name} {number}" for name, number in machine["packages"].items() if number != "not installed"
    )
    return (
        f"{machine['processor']}, {results['threads']} threads of {machine['threads']}, "
        f"{machine['memory_bytes'] / 2**30:.0f} GB; {versions}; {machine['time'][:10]}."
    )


def filled(text: str, name: str, content: str) -> str:
    """`text` with `content` between the markers of `name`. Raises ValueError where there are none."""
    pattern = re.compile(rf"(<!-- bench:{name} -->\n).*?(<!-- /bench:{name} -->)", re.DOTALL)
    if not pattern.search(text):
        raise ValueError(f"{README.name} has no markers for {name}")
    return pattern.sub(lambda found: f"{found.group(1)}{content}\n{found.group(2)}", text)


def sections(directory: Path) -> dict[str, str]:
    """The content of each block that has results in `directory`."""
    found = {}
    reuse = directory / "prefix_reuse.json"
    if reuse.exists():
        results = json.loads(reuse.read_text())
        records = [Record(**step) for step in results["steps"]]
        found["prefix_reuse"] = f"{reuse_table(records)}\n\n{about(results)}"
    parts = []
    for path in sorted(directory.glob("speed_*.json")) + sorted(directory.glob("same_bits_*.json")):
        if not path.stem.endswith("_quick"):
            results = json.loads(path.read_text())
            lines = speed.lines(results) if path.stem.startswith("speed") else same_bits.lines(results)
            parts.append(f"**{results['model']}**\n\n" + "\n".join(lines) + f"\n\n{about(results)}")
    if parts:
        found["speed"] = "\n\n".join(parts)
    tables = []
    for name, (title, lines) in SSD.items():
        path = directory / f"{name}.json"
        if path.exists():
            results = json.loads(path.read_text())
            tables.append(f"**{title}**\n\n" + "\n".join(lines(results)) + f"\n\n{about(results)}")
    if tables:
        found["ssd"] = "\n\n".join(tables)
    return found


def main() -> None:
    text = README.read_text()
    for name, content in sections(RESULTS).items():
        text = filled(text, name, content)
    README.write_text(text)


if __name__ == "__main__":
    main()
