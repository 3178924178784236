"""How many bytes are written to the SSD for each byte of new state over a long conversation?

    python bench/endurance.py [--turns 40]

State as large as SmolLM2's, made up; an agent's conversation: a head of 3,000 tokens, then turns that add
a tool's result or a question (50 to 900 tokens) and a reply (20 to 300). The end of every prompt leaves
its logits. Three ways: turn after turn without a pause; a pause after every turn long enough that the
ends of sequences are saved each time; and a restart after every tenth turn besides. `written` are the
bytes of all files, `catalog_bytes` the size of the catalog in the end.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import threading
from pathlib import Path
from typing import Any

import numpy as np

from headstart.prefix.block import RowBytes
from headstart.prefix.keys import token_bytes
from headstart.prefix.plan import PromptHints
from headstart.prefix.ssd import CATALOG
from headstart.prefix.tokens import TokenRun
from machine import write_results
from ssd_restore import LAYOUT, NAMESPACE, ROW_BYTES, opened

HEAD_TOKENS = 3000


class Conversation:
    """The text so far, and what it has left on the disk."""

    def __init__(self, directory: Path, seed: int) -> None:
        self.directory = directory
        self.rng = np.random.default_rng(seed)
        self.text: TokenRun = self.drawn(HEAD_TOKENS)
        self.written = 0
        self.state = 0
        self.tier, self.cache = opened(directory)

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
        self.written += self.tier.statistics().written_bytes
        self.tier.close()
        self.tier, self.cache = opened(self.directory)
        self.bring_back()

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
    talk.written += talk.tier.statistics().written_bytes
    talk.tier.close()
    return {
        "pauses": pauses,
        "restarts": restarts,
        "turns": turns,
        "tokens": len(talk.text),
        "state_bytes": talk.state,
        "written_bytes": talk.written,
        "written_per_state_byte": round(talk.written / talk.state, 4),
        "catalog_bytes": (directory / CATALOG).stat().st_size,
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--turns", type=int, default=40)
    parser.add_argument("--out", type=Path, help="folder for the results (default: bench/results)")
    options = parser.parse_args()
    runs = []
    for pauses, restarts in ((False, False), (True, False), (True, True)):
        with tempfile.TemporaryDirectory(prefix="headstart-endurance-") as base:
            runs.append(play(Path(base), options.turns, pauses=pauses, restarts=restarts))
            print(json.dumps(runs[-1]), flush=True)
    print(write_results("endurance", {"row_bytes": LAYOUT.row_bytes, "runs": runs}))


if __name__ == "__main__":
    main()
