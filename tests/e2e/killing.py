"""A server that is killed at random moments, again and again, and what its store is worth each time.

The child (this file as a program) serves prompts without pause and writes every answer to its standard
output at the moment it is given. The parent kills it, then opens the store as the next start would.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from headstart.prefix.keys import token_bytes
from headstart.prefix.listing import TEMPORARY
from headstart.prefix.ssd_tier import SsdSettings, SsdTier
from headstart.prefix.tokens import TokenRun
from headstart.prefix.verify import verify
from headstart.serving.scheduler import Scheduler
from tests.serving.harness import SETTINGS, CountingToy, Server, cold_reply, prompt_of

ROOT = Path(__file__).resolve().parents[2]
LAYERS = ("full", "window", "recurrent")
FLUSH_INTERVAL_S = 1.0
REPLY_TOKENS = 6
MOST_STEP_TOKENS = 16
SMALL_BUDGET_BYTES = 600_000
PLENTY_BYTES = 1 << 30

Ask = tuple[int, int, int]
"""A prompt: of which family, how much of the family's text, and how many tokens of its own."""


def drawn(rng: random.Random) -> Ask:
    return rng.randrange(6), rng.choice((0, 16, 33, 64, 100, 150, 200)), rng.randrange(1, 40)


def prompt_for(ask: Ask) -> TokenRun:
    family, shared, own = ask
    return np.concatenate([prompt_of(200, family)[:shared], prompt_of(own, 1000 + sum(ask))])


def engine() -> CountingToy:
    return CountingToy(LAYERS, max_step_tokens=MOST_STEP_TOKENS, max_sequences=3)


class Serving(Server):
    """A scheduler over the store in `directory`."""

    def __init__(self, directory: Path, budget_bytes: int) -> None:
        self.engine = engine()
        self.tier = SsdTier(
            SsdSettings(directory, budget_bytes, reserve_bytes=0, flush_interval_s=FLUSH_INTERVAL_S),
            self.engine.layout,
            SETTINGS.block_tokens,
        )
        self.scheduler = Scheduler(self.engine, SETTINGS, ssd=self.tier)

    def __exit__(self, *_: object) -> None:
        self.scheduler.stop()
        assert self.tier.flush(timeout_s=30) == 0
        self.tier.close()


def child(directory: Path, budget_bytes: int, seed: int) -> None:
    """Serves until killed, three requests at a time. One line of JSON an answer."""
    rng = random.Random(seed)
    with Serving(directory, budget_bytes) as server:
        print(json.dumps("ready"), flush=True)
        while True:
            asks = [drawn(rng) for _ in range(3)]
            replies = [server.send(prompt_for(ask), REPLY_TOKENS)[0] for ask in asks]
            for ask, reply in zip(asks, replies, strict=True):
                reply.wait()
                print(json.dumps([*ask, time.monotonic(), reply.tokens]), flush=True)


@dataclass
class Killed:
    """One life of the child. `answers`: what it said, with the time; `killed_s`: when it was killed."""

    answers: list[tuple[Ask, float, list[int]]] = field(default_factory=list)
    killed_s: float = 0.0


def live_and_die(directory: Path, budget_bytes: int, seed: int, life_s: float) -> Killed:
    """Starts the child, lets it serve for `life_s` and kills it."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, sys.path)])}
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.e2e.killing", str(directory), str(budget_bytes), str(seed)],
        stdout=subprocess.PIPE,
        env=environment,
        cwd=ROOT,
        text=True,
    )
    killed = Killed()
    ready = threading.Event()

    def listen() -> None:
        assert process.stdout is not None
        for line in process.stdout:
            if not line.endswith("\n"):
                return
            said = json.loads(line)
            if said == "ready":
                ready.set()
            else:
                family, shared, own, told_s, tokens = said
                killed.answers.append(((family, shared, own), told_s, tokens))

    listener = threading.Thread(target=listen)
    listener.start()
    try:
        assert ready.wait(60), "the child did not start"
        time.sleep(life_s)
    finally:
        killed.killed_s = time.monotonic()
        process.kill()
        process.wait()
        listener.join()
    return killed


class Cold:
    """What an engine without any cache answers, computed once a prompt."""

    def __init__(self) -> None:
        self._known: dict[Ask, list[int]] = {}

    def reply(self, ask: Ask) -> list[int]:
        if ask not in self._known:
            self._known[ask] = cold_reply(engine(), prompt_for(ask), REPLY_TOKENS)
        return self._known[ask]


@dataclass
class Findings:
    """What one kill has shown. `lost`: answered over a second before it, and not all there."""

    answers: int = 0
    files: int = 0
    half_written: int = 0
    adopted: int = 0
    missing: int = 0
    stray: int = 0
    open_s: float = 0.0
    checked: int = 0
    restored_tokens: int = 0


def examine(directory: Path, budget_bytes: int, killed: Killed, cold: Cold, rng: random.Random) -> Findings:
    """Opens the store a kill has left. Raises AssertionError where it is not worth what it should be."""
    before = verify(directory)
    assert before.problems == (), "a file with the name of an entry is not whole"
    half = list(directory.glob(f"*/*/{TEMPORARY}*"))
    for ask, _, tokens in killed.answers:
        assert tokens == cold.reply(ask), f"the child answered {ask} otherwise than a cold run"
    with Serving(directory, budget_bytes) as server:
        opened = server.tier.opened
        assert list(directory.glob(f"*/*/{TEMPORARY}*")) == [], "a temporary file outlived the start"
        assert (opened.unusable, opened.temporary) == (0, len(half))
        assert verify(directory).problems == ()
        assert server.tier.shelf.used_bytes <= budget_bytes
        if budget_bytes == PLENTY_BYTES:
            check_nothing_old_is_lost(server.tier, killed)
        asks = [ask for ask, _, _ in killed.answers]
        checked = [*rng.sample(asks, min(2, len(asks))), drawn(rng)]
        restored = 0
        for ask in checked:
            reply, done = server.ask(prompt_for(ask), REPLY_TOKENS)
            assert reply.tokens == cold.reply(ask), f"{ask} is answered otherwise than by a cold run"
            restored += done.report.restored
    return Findings(
        answers=len(killed.answers),
        files=before.files,
        half_written=len(half),
        adopted=opened.adopted,
        missing=opened.missing,
        stray=opened.stray,
        open_s=opened.open_s,
        checked=len(checked),
        restored_tokens=restored,
    )


def check_nothing_old_is_lost(tier: SsdTier, killed: Killed) -> None:
    """Of what was answered a flush interval or more before the kill, only the open block may be gone."""
    (namespace,) = tier.shelf.tree.roots or (b"",)
    for ask, told_s, _ in killed.answers:
        if told_s < killed.killed_s - FLUSH_INTERVAL_S:
            prompt = prompt_for(ask)
            whole = len(prompt) // SETTINGS.block_tokens * SETTINGS.block_tokens
            found = tier.match(namespace, token_bytes(prompt)).length
            assert found >= whole, (
                f"{ask} was answered {killed.killed_s - told_s:.1f} s before the kill; of {whole} tokens "
                f"in whole blocks {found} are there"
            )


if __name__ == "__main__":
    child(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
