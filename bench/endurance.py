"""How many bytes are written to the SSD for each byte of new state over a long conversation?

    python bench/endurance.py                    about 5 minutes on two cores, 4 of them for the server
    python bench/endurance.py --only made-up     under a minute

made-up: state as large as SmolLM2's, at random; an agent's conversation: a head of 3,000 tokens, then turns
that add a tool's result or a question (50 to 900 tokens) and a reply (20 to 300). The end of every prompt
leaves its logits. Three ways: turn after turn without a pause; a pause after every turn long enough that the
ends of sequences are saved each time; and a restart after every tenth turn besides.

server: the same with `headstart serve` and SmolLM2, shorter turns (`--server-tokens` and a reply of 32) and
no pause; counted are its own number of bytes written and, after its end, the files that are there.

New state is the rows of every token and the logits of every prompt, each once. What is written beyond it is
told apart: `partial` blocks that were replaced by longer ones later, `again` entries written a second time,
and `overhead`, the headers and tokens of files. The catalog is extra: `catalog_bytes` is its size in the end.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from headstart.prefix.block import RowBytes
from headstart.prefix.blockfile import Array, EntryKind, Head
from headstart.prefix.cache import PrefixCache
from headstart.prefix.keys import token_bytes
from headstart.prefix.plan import PromptHints
from headstart.prefix.ssd import CATALOG
from headstart.prefix.ssd_tier import SsdTier
from headstart.prefix.tokens import TokenRun
from machine import write_results
from models import MODELS, text_tokens
from servers import Ask, Setup, counters, headstart, wait_written
from ssd_restore import LAYOUT, NAMESPACE, ROW_BYTES, opened
from workloads import Source

HEAD_TOKENS = 3000
SERVER_HEAD_TOKENS, SERVER_REPLY_TOKENS = 1000, 32
STATE_BYTES = {"smollm2": (LAYOUT.row_bytes, 49152 * 4)}
"""Of a row and of logits."""


class Ledger:
    """What was written, by what it was. Follows the writes of one store at a time.

    `written`: bytes as the tier counts them, which all others have to add up to."""

    def __init__(self) -> None:
        self.written = 0
        self.overhead = 0
        self.again = 0
        self.bytes_of: dict[bytes, int] = {}
        self.logits = 0

    def follow(self, tier: SsdTier) -> None:
        write = tier.files.write

        def noted(head: Head, tensors: Mapping[str, Array]) -> int:
            size = write(head, tensors)
            self.overhead += size - sum(array.nbytes for array in tensors.values())
            self.again += size if head.key in self.bytes_of else 0
            self.bytes_of[head.key] = size
            self.logits += size if head.kind is EntryKind.LOGITS else 0
            return size

        tier.files.write = noted  # type: ignore[method-assign]

    def replaced(self, directory: Path) -> int:
        """Bytes of files that are not there any more, in a store that drops nothing for room."""
        there = {bytes.fromhex(path.stem) for path in directory.glob("*/*/[!.]*.safetensors")}
        return sum(size for key, size in self.bytes_of.items() if key not in there)


class Conversation:
    """The text so far, and what it has left on the disk."""

    def __init__(self, directory: Path, seed: int) -> None:
        self.directory = directory
        self.rng = np.random.default_rng(seed)
        self.text: TokenRun = self.drawn(HEAD_TOKENS)
        self.ledger = Ledger()
        self.state = 0
        self.tier, self.cache = self.open()

    def open(self) -> tuple[SsdTier, PrefixCache]:
        tier, cache = opened(self.directory)
        self.ledger.follow(tier)
        return tier, cache

    def drawn(self, count: int) -> TokenRun:
        return self.rng.integers(1, LAYOUT.vocab_size, count).astype(np.int32)

    def turn(self) -> None:
        prompt = np.append(self.text, self.drawn(int(self.rng.integers(50, 900))))
        reply = self.drawn(int(self.rng.integers(20, 300)))
        self.read(prompt, logits=True)
        self.text = np.append(prompt, reply)
        self.read(self.text, logits=False)

    def read(self, upto: TokenRun, *, logits: bool) -> None:
        """What reading `upto` from what is known on leaves behind."""
        recorder = self.cache.recorder(NAMESPACE, upto)
        for at in range(recorder.position, len(upto), 256):
            run = upto[at : at + 256]
            planes = tuple(self.rng.integers(0, 256, (len(run), ROW_BYTES), np.uint8) for _ in LAYOUT.planes)
            recorder.record(run, RowBytes(planes), canonical=False)
            self.state += len(run) * LAYOUT.row_bytes
            self.tier.poll()
        if logits:
            scores = self.rng.random(LAYOUT.vocab_size, np.float32)
            recorder.put_logits(scores)
            self.state += scores.nbytes
        recorder.close()

    def pause(self) -> None:
        self.cache.save_tails()
        self.flush()

    def flush(self) -> None:
        assert self.tier.flush(timeout_s=600) == 0

    def restart(self) -> None:
        self.pause()
        self.end()
        self.tier, self.cache = self.open()
        self.bring_back()

    def end(self) -> None:
        self.ledger.written += self.tier.statistics().written_bytes
        self.tier.close()

    def bring_back(self) -> None:
        """What the next request does first: it brings the conversation back."""
        woken = threading.Event()
        longer = np.append(self.text, np.int32(0))
        fetch = self.cache.fetch(self.cache.plan(NAMESPACE, longer, [], PromptHints()), woken.set)
        assert fetch is not None
        while not fetch.advance():
            woken.wait()
            woken.clear()
        fetch.close()
        assert self.tier.match(NAMESPACE, token_bytes(self.text)).length == len(self.text)


def play(directory: Path, turns: int, *, pauses: bool, restarts: bool) -> dict[str, Any]:
    talk = Conversation(directory, seed=turns)
    for turn in range(turns):
        talk.turn()
        if pauses:
            talk.pause()
        if restarts and turn % 10 == 9:
            talk.restart()
    talk.pause()
    talk.end()
    ledger = talk.ledger
    assert ledger.written == sum(ledger.bytes_of.values()) + ledger.again
    return {
        "pauses": pauses,
        "restarts": restarts,
        "turns": turns,
        "tokens": len(talk.text),
        "state_bytes": talk.state,
        "written_bytes": ledger.written,
        "written_per_state_byte": round(ledger.written / talk.state, 4),
        "partial_bytes": ledger.replaced(directory),
        "again_bytes": ledger.again,
        "overhead_bytes": ledger.overhead,
        "logits_bytes": ledger.logits,
        "catalog_bytes": (directory / CATALOG).stat().st_size,
    }


def serve(name: str, turns: int, turn_tokens: int, threads: int) -> dict[str, Any]:
    """The conversation with a real server. Replies are forced, so that the tokens with rows are known."""
    model = MODELS[name]()
    text, forced = text_tokens(model)
    source = Source(text, 3)
    row_bytes, logits_bytes = STATE_BYTES[name]
    setup = Setup(model, SERVER_HEAD_TOKENS + (turns + 1) * (turn_tokens + SERVER_REPLY_TOKENS), threads)
    prompt = source.take(SERVER_HEAD_TOKENS)
    read = 0
    with tempfile.TemporaryDirectory(prefix="headstart-endurance-") as base:
        with headstart(setup, "--base-path", base, "--ssd-cache", "50GB") as server:
            for _ in range(turns):
                prompt = prompt + source.take(turn_tokens)
                reply = server.complete(Ask(prompt, SERVER_REPLY_TOKENS, force=forced))
                read += reply.read_tokens
                prompt = prompt + [forced] * SERVER_REPLY_TOKENS
            wait_written(server.url)
            written = int(counters(server.url)["headstart_ssd_written_bytes_total"])
        files = [path.stat().st_size for path in Path(base).glob("ssd/*/*/*.safetensors")]
        catalog = (Path(base) / "ssd" / CATALOG).stat().st_size
    state = (len(prompt) - 1) * row_bytes + turns * logits_bytes
    return {
        "model": name,
        "turns": turns,
        "tokens": len(prompt),
        "computed_prompt_tokens": read,
        "state_bytes": state,
        "written_bytes_before_the_end": written,
        "files_bytes": sum(files),
        "written_per_state_byte": round(max(written, sum(files)) / state, 4),
        "catalog_bytes": catalog,
    }


def lines(results: dict[str, Any]) -> list[str]:
    """The results as a Markdown table."""
    rows = ["| conversation | tokens | new state | written | bytes per byte | partial blocks | overhead |"]
    rows += ["|---|---:|---:|---:|---:|---:|---:|"]
    for one in results.get("made_up", []):
        ways = [word for word in ("pauses", "restarts") if one[word]]
        rows.append(
            f"| {one['turns']} turns, {' and '.join(ways) or 'no pause'} | {one['tokens']:,} | "
            f"{one['state_bytes'] / 1e6:,.0f} MB | {one['written_bytes'] / 1e6:,.0f} MB | "
            f"{one['written_per_state_byte']:.3f} | {one['partial_bytes'] / one['state_bytes']:.1%} | "
            f"{one['overhead_bytes'] / one['state_bytes']:.2%} |"
        )
    for one in results.get("server", []):
        written = max(one["written_bytes_before_the_end"], one["files_bytes"])
        rows.append(
            f"| {one['turns']} turns, server with {one['model']} | {one['tokens']:,} | "
            f"{one['state_bytes'] / 1e6:,.0f} MB | {written / 1e6:,.0f} MB | "
            f"{one['written_per_state_byte']:.3f} | | |"
        )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", choices=("made-up", "server"), help="one part (default: both)")
    parser.add_argument("--turns", type=int, default=40)
    parser.add_argument("--server-tokens", type=int, default=250, help="new tokens a turn (default: 250)")
    parser.add_argument("--threads", type=int, default=psutil.cpu_count(logical=False) or 1)
    parser.add_argument("--out", type=Path, help="folder for the results (default: bench/results)")
    options = parser.parse_args()
    results: dict[str, Any] = {"row_bytes": LAYOUT.row_bytes, "threads": options.threads}
    if options.only != "server":
        results["made_up"] = []
        for pauses, restarts in ((False, False), (True, False), (True, True)):
            with tempfile.TemporaryDirectory(prefix="headstart-endurance-") as base:
                results["made_up"].append(play(Path(base), options.turns, pauses=pauses, restarts=restarts))
                print(json.dumps(results["made_up"][-1]), flush=True)
    if options.only != "made-up":
        results["server"] = [serve("smollm2", options.turns, options.server_tokens, options.threads)]
        print(json.dumps(results["server"][-1]), flush=True)
    print("\n".join(lines(results)))
    print(write_results("endurance", results, *([options.out] if options.out else [])))


if __name__ == "__main__":
    main()
