"""`headstart serve` under clients, killed, and what its store is worth afterwards. For kill_loop.py."""

from __future__ import annotations

import http.client
import json
import random
import subprocess
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np

from headstart.prefix.keys import TOKEN_BYTES, chain_key, token_bytes
from headstart.prefix.ssd import CATALOG, SsdFiles
from headstart.prefix.verify import verify
from servers import (
    FORCE,
    Ask,
    Headstart,
    Reply,
    Server,
    Setup,
    counters,
    headstart,
    headstart_command,
    wait_ready,
)

BLOCK_TOKENS = 32
FLUSH_INTERVAL_S = 1.0
BUDGET_BYTES = 2_000_000
"""Of a store that evicts: about 70 blocks; a server reads more than that in a second."""
CLIENTS = 3
REPLY_TOKENS = 40
CHECKED_TOKENS = 8
FORCED = 1000
STARTING_EVERY = 10
LONGEST_START_S = 2.0
SCRAPE_S = 0.1
GRID_TOKENS = 64
GRID = ("--block-size", str(BLOCK_TOKENS), "--prefill-chunk", str(GRID_TOKENS), "--reproducible")
SETUP = {"context_tokens": 1024, "threads": 1, "slots": CLIENTS}
Tokens = list[int]


class Clean:
    """A server without a cache, asked by one thread at a time."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._turn = threading.Lock()

    def reply(self, prompt: Tokens) -> Reply:
        with self._turn:
            return free_reply(self._server, prompt)


@contextmanager
def clean_server(model: Path) -> Iterator[Clean]:
    with headstart(Setup(model, **SETUP), *GRID, "--no-cache") as server:
        yield Clean(server)


def free_reply(server: Server, prompt: Tokens) -> Reply:
    return server.complete(Ask(prompt, CHECKED_TOKENS, logprobs=True))


def drawn(rng: random.Random) -> Tokens:
    """A prompt of 40 to 640 tokens that begins like many others and goes on like none."""
    family = random.Random(rng.randrange(4))
    head = [family.randrange(100, 4000) for _ in range(400)][: rng.choice((0, 32, 100, 257, 400))]
    return head + [rng.randrange(100, 4000) for _ in range(rng.randrange(40, 240))]


@dataclass
class Sent:
    """One request to a server that will be killed. `arrived_s`: when each token of its reply came, which is
    FORCED every time; `ended`: all of it was there."""

    prompt: Tokens
    arrived_s: list[float] = field(default_factory=list)
    ended: bool = False

    @property
    def computed(self) -> Tokens:
        """The tokens that certainly had rows when the last token came."""
        return self.prompt + [FORCED] * (len(self.arrived_s) - 1) if self.arrived_s else []

    @property
    def kept(self) -> Tokens:
        """Those of them that are saved: with --reproducible, the prompt's whole chunks on the grid."""
        return self.computed[: len(self.prompt) // GRID_TOKENS * GRID_TOKENS]

    def had_rows_s(self, position: int) -> float:
        """When the rows of the first `position` tokens were known to be there."""
        return self.arrived_s[max(0, position - len(self.prompt))]

    def send(self, url: str) -> None:
        """Sends it and listens until the end, or until the server is gone."""
        body = {
            **{"prompt": self.prompt, "max_tokens": REPLY_TOKENS, "temperature": 0, "ignore_eos": True},
            **{"stream": True, "logit_bias": {str(FORCED): FORCE}},
        }
        parts = urlsplit(url)
        connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=60)
        connection.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
        response = connection.getresponse()
        if response.status != http.HTTPStatus.OK:
            raise RuntimeError(f"answered {response.status}: {response.read(500)!r}")
        for line in response:
            if line.startswith(b"data: [DONE]"):
                self.ended = True
            elif line.startswith(b"data: {") and b'"text":""' not in line:
                self.arrived_s.append(time.monotonic())
        connection.close()


@dataclass
class Life:
    """One life of a server: what was sent, and the counts it reported last."""

    sent: list[Sent] = field(default_factory=list)
    reported: dict[str, float] = field(default_factory=dict)
    killed_s: float = 0.0
    starting: bool = False
    problems: list[str] = field(default_factory=list)


class KilledStore:
    """A store and the servers over it that are killed one after another."""

    def __init__(self, base: Path, model: Path, clean: Clean, rng: random.Random, *, evicting: bool) -> None:
        base.mkdir(parents=True)
        self._base, self._model, self._clean, self._rng = base, model, clean, rng
        self._evicting = evicting
        self._directory = base / "ssd"
        self._log = base / "log"
        self._namespace = b""
        self._present: set[bytes] = set()
        self._ask_again: list[Tokens] = []

    def kill_once(self, seed: int, life_s: float) -> dict[str, Any]:
        """Starts a server, checks it, lets clients at it for `life_s`, kills it, checks the store."""
        life = Life(starting=seed % STARTING_EVERY == STARTING_EVERY // 2)
        with self._started() as process:
            if life.starting:
                time.sleep(self._rng.uniform(0.0, LONGEST_START_S))
                found: dict[str, Any] = {}
            else:
                server = Headstart(wait_ready(process, self._log))
                found = self._check_started(server, life)
                self._live(server, process, life, life_s)
            process.kill()
            process.wait()
        return {**found, **self._examine(life), "starting": int(life.starting), "problems": life.problems}

    def end(self) -> list[str]:
        """A last start, which is let go in peace; answers problems."""
        life = Life()
        with self._started() as process:
            self._check_started(Headstart(wait_ready(process, self._log)), life)
            process.terminate()
            if process.wait(timeout=60) != 0:
                life.problems.append(f"the end was not in order: {self._log.read_text()[-500:]}")
        return life.problems

    @contextmanager
    def _started(self) -> Iterator[subprocess.Popen[bytes]]:
        flags = ["--base-path", str(self._base), "--flush-interval", str(FLUSH_INTERVAL_S), *GRID]
        flags += ["--ssd-reserve", "0", "--ssd-cache", str(BUDGET_BYTES if self._evicting else 1 << 30)]
        with self._log.open("wb") as log:
            command = headstart_command(Setup(self._model, **SETUP), *flags)
            process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=log, stderr=log)
            try:
                yield process
            finally:
                process.kill()
                process.wait()

    def _check_started(self, server: Headstart, life: Life) -> dict[str, Any]:
        """No temporary file is left, and replies are those of a server without a cache."""
        if self._directory.exists() and SsdFiles(self._directory, read_only=True).scan().temporary:
            life.problems.append("a temporary file outlived the start")
        with urllib.request.urlopen(f"{server.url}/v1/headstart/cache", timeout=30) as reply:
            self._namespace = bytes.fromhex(json.load(reply)["namespace"])
        restored = 0
        checked = [*self._ask_again, drawn(self._rng)]
        for prompt in checked:
            got, want = free_reply(server, prompt), self._clean.reply(prompt)
            if (got.text, got.logprobs) != (want.text, want.logprobs):
                life.problems.append(f"a prompt of {len(prompt)} tokens is answered otherwise: {got}, {want}")
            restored += got.prompt_tokens - got.read_tokens
        self._ask_again = []
        return {"checked": len(checked), "restored_tokens": restored}

    def _live(self, server: Headstart, process: subprocess.Popen[bytes], life: Life, life_s: float) -> None:
        over = threading.Event()

        def client(rng: random.Random) -> None:
            while not over.is_set():
                one = Sent(drawn(rng))
                life.sent.append(one)
                try:
                    one.send(server.url)
                except (OSError, http.client.HTTPException, RuntimeError) as error:
                    if not over.is_set():
                        life.problems.append(f"a request failed before the kill: {error!r}")
                    return

        def scrape() -> None:
            while not over.wait(SCRAPE_S):
                with suppress(OSError, http.client.HTTPException, ValueError):
                    life.reported = counters(server.url)

        threads = [
            threading.Thread(target=client, args=(random.Random(self._rng.random()),)) for _ in range(CLIENTS)
        ]
        threads.append(threading.Thread(target=scrape))
        for thread in threads:
            thread.start()
        time.sleep(life_s)
        over.set()
        life.killed_s = time.monotonic()
        process.kill()
        for thread in threads:
            thread.join()

    def _examine(self, life: Life) -> dict[str, Any]:
        if not self._directory.exists():
            return {}
        report = verify(self._directory)
        life.problems += [f"{problem.path}: {problem.detail}" for problem in report.problems]
        scan = SsdFiles(self._directory, read_only=True).scan()
        present = {file.key for file in scan.entries}
        found = {
            "requests": len(life.sent),
            "in_prefill": sum(not one.arrived_s for one in life.sent),
            "in_decode": sum(bool(one.arrived_s) and not one.ended for one in life.sent),
            "files": report.files,
            "half_written": 0 if life.starting else len(scan.temporary),
            "reported_saved": int(life.reported.get("headstart_ssd_saved_entries_total", 0)),
            "evicted": int(life.reported.get("headstart_ssd_evicted_entries_total", 0)),
        }
        if self._evicting:
            found["used_bytes"] = self._used_bytes()
            if found["used_bytes"] > BUDGET_BYTES:
                life.problems.append(f"{found['used_bytes']} bytes are in use, of {BUDGET_BYTES}")
        else:
            found |= self._missing(life, present, found["reported_saved"])
        self._present = present
        asked = [one.prompt for one in life.sent]
        self._ask_again = self._rng.sample(asked, min(2, len(asked)))
        return found

    def _used_bytes(self) -> int:
        """What entries and the catalog take up on the disk."""
        files = [*self._directory.glob("*/*/[!.]*"), self._directory / CATALOG]
        return sum(file.stat().st_blocks * 512 for file in files if file.exists())

    def _missing(self, life: Life, present: set[bytes], reported: int) -> dict[str, Any]:
        """What is not there of what was: reported as saved, there before, or computed for a request."""
        new = len(present - self._present)
        if self._present - present:
            life.problems.append(f"{len(self._present - present)} entries of earlier lives are gone")
        if new < reported:
            life.problems.append(f"{reported} entries were reported as saved, {new} are there")
        oldest_s, most = 0.0, 0
        for one in life.sent:
            stored, whole = self._stored(one.kept, present)
            most = max(most, len(one.computed) - stored)
            if stored < whole:
                oldest_s = max(oldest_s, life.killed_s - one.had_rows_s(stored + BLOCK_TOKENS))
        if oldest_s > FLUSH_INTERVAL_S:
            life.problems.append(f"a whole block is missing that was there {oldest_s:.2f} s before")
        return {"missing_tokens": most, "oldest_missing_s": round(oldest_s, 4)}

    def _stored(self, tokens: Tokens, present: set[bytes]) -> tuple[int, int]:
        """How many leading tokens are in files, and how many are in whole blocks."""
        data, key, size = token_bytes(np.array(tokens, np.int32)), self._namespace, BLOCK_TOKENS * TOKEN_BYTES
        whole = len(tokens) // BLOCK_TOKENS * BLOCK_TOKENS
        for at in range(0, whole // BLOCK_TOKENS):
            key = chain_key(key, data[at * size : (at + 1) * size])
            if key not in present:
                return at * BLOCK_TOKENS, whole
        return whole, whole
