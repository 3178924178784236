"""The servers under test, each in a process of its own, behind one small client interface.

Replies are forced: a logit bias makes the model say one known token over and over, so that prompts
of later turns are the same for every server and the tokens that have rows are known exactly.
"""

from __future__ import annotations

import http.client
import json
import re
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlsplit

HERE = Path(__file__).parent
START_TIMEOUT_S = 300
FORCE = 100.0
"""Logit bias that leaves the sampler no other choice."""


@dataclass(frozen=True)
class Reply:
    """What one request cost. `read_tokens`: prompt tokens the server says it computed.

    `first_token_s` and `wall_s` are taken at the client; `prefill_s` and `decode_s` are the
    server's own. `facts`: what else it said (tier, reason).
    """

    prompt_tokens: int
    read_tokens: int
    completion_tokens: int
    first_token_s: float
    wall_s: float
    prefill_s: float
    decode_s: float
    text: str = ""
    logprobs: tuple[float, ...] = ()
    facts: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Ask:
    """One request: `force` is the token the reply is made of; None lets the model speak, greedily."""

    prompt: list[int]
    count: int
    force: int | None = None
    use_cache: bool = True
    logprobs: bool = False


class Server(Protocol):
    """A running server. `complete` may be called from several threads."""

    name: str
    url: str

    def complete(self, ask: Ask) -> Reply: ...


@dataclass
class Headstart:
    """`headstart serve`, asked through /v1/completions with token ids."""

    url: str
    name: str = "headstart"

    def complete(self, ask: Ask) -> Reply:
        body: dict[str, Any] = {
            "prompt": ask.prompt,
            "max_tokens": ask.count,
            "temperature": 0,
            "ignore_eos": True,
            "stream": True,
            "stream_options": {"include_usage": True},
            "cache_prompt": ask.use_cache,
            "headstart": {"report": True},
        }
        if ask.force is not None:
            body["logit_bias"] = {str(ask.force): FORCE}
        if ask.logprobs:
            body["logprobs"] = 1
        events, first_s, wall_s = stream(self.url, "/v1/completions", body)
        choices = [choice for event in events for choice in event.get("choices", [])]
        usage = next(event["usage"] for event in reversed(events) if event.get("usage"))
        report = next((event["headstart"]["report"] for event in events if "headstart" in event), {})
        return Reply(
            prompt_tokens=usage["prompt_tokens"],
            read_tokens=usage["prompt_tokens"] - usage["prompt_tokens_details"]["cached_tokens"],
            completion_tokens=usage["completion_tokens"],
            first_token_s=first_s,
            wall_s=wall_s,
            prefill_s=usage["prompt_eval_duration"],
            decode_s=usage["generation_duration"],
            text="".join(choice.get("text", "") for choice in choices),
            logprobs=tuple(
                value
                for choice in choices
                for value in (choice.get("logprobs") or {}).get("token_logprobs", [])
            ),
            facts=report,
        )


@dataclass
class LlamaServer:
    """llama.cpp's own server, asked through its native /completion."""

    url: str
    name: str = "llama-server"

    def complete(self, ask: Ask) -> Reply:
        body: dict[str, Any] = {
            "prompt": ask.prompt,
            "n_predict": ask.count,
            "temperature": 0,
            "ignore_eos": True,
            "stream": True,
            "cache_prompt": ask.use_cache,
            "return_tokens": True,
        }
        if ask.force is not None:
            body["logit_bias"] = [[ask.force, FORCE]]
        if ask.logprobs:
            body["n_probs"] = 1
        events, first_s, wall_s = stream(self.url, "/completion", body)
        timings = events[-1]["timings"]
        return Reply(
            prompt_tokens=timings["cache_n"] + timings["prompt_n"],
            read_tokens=timings["prompt_n"],
            completion_tokens=timings["predicted_n"],
            first_token_s=first_s,
            wall_s=wall_s,
            prefill_s=timings["prompt_ms"] / 1e3,
            decode_s=timings["predicted_ms"] / 1e3,
            text="".join(event.get("content", "") for event in events),
            logprobs=tuple(
                entry["logprob"] for event in events for entry in event.get("completion_probabilities", [])
            ),
        )


def stream(url: str, path: str, body: dict[str, Any]) -> tuple[list[dict[str, Any]], float, float]:
    """Posts `body` and reads the event stream: its events, seconds to the first, seconds to the last."""
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=1800)
    payload = json.dumps(body).encode()
    connection.connect()
    started_s = time.perf_counter()
    connection.request("POST", path, payload, {"Content-Type": "application/json"})
    response = connection.getresponse()
    if response.status != http.HTTPStatus.OK:
        raise RuntimeError(f"{url}{path} answered {response.status}: {response.read(2000)!r}")
    events: list[dict[str, Any]] = []
    first_s = 0.0
    for line in response:
        if line.startswith(b"data: {"):
            first_s = first_s or time.perf_counter() - started_s
            events.append(json.loads(line[6:]))
            if "error" in events[-1]:
                raise RuntimeError(f"{url}{path}: {events[-1]['error']}")
    wall_s = time.perf_counter() - started_s
    connection.close()
    return events, first_s, wall_s


def counters(url: str) -> dict[str, float]:
    """The unlabelled values of /metrics: totals and gauges."""
    with urllib.request.urlopen(f"{url}/metrics", timeout=30) as reply:
        lines = [line for line in reply.read().decode().splitlines() if line and not line.startswith("#")]
    pairs = (line.rsplit(" ", 1) for line in lines if "{" not in line)
    return {name: float(value) for name, value in pairs}


def wait_written(url: str, timeout_s: float = 120) -> None:
    """Waits until nothing is on its way to the SSD. Raises RuntimeError where that takes too long."""
    deadline_s = time.monotonic() + timeout_s
    while counters(url).get("headstart_ssd_unwritten_entries", 0):
        if time.monotonic() > deadline_s:
            raise RuntimeError(f"{url}: not everything was written to the SSD within {timeout_s} s")
        time.sleep(0.05)


@dataclass(frozen=True)
class Setup:
    """What all servers of one comparison have in common. `threads` 0: the engine's own choice. `slots`:
    requests at a time. `unified`: llama-server keeps the rows of all slots in one buffer, as --batching
    shared does."""

    model: Path
    context_tokens: int
    threads: int
    slots: int = 1
    unified: bool = False


@contextmanager
def headstart(setup: Setup, *flags: str) -> Iterator[Headstart]:
    """`headstart serve` with `setup` and further `flags`; it leaves nothing on disk unless they say so."""
    with tempfile.TemporaryDirectory() as base:
        command = headstart_command(setup, "--base-path", base, "--ssd-cache", "0", *flags)
        with running(command) as url:
            yield Headstart(url)


def headstart_command(setup: Setup, *flags: str) -> list[str]:
    """The command line of `headstart serve` with `setup` on a free port; of equal flags the last counts."""
    return [
        *(sys.executable, "-m", "headstart", "serve", "--port", "0", "--model", str(setup.model)),
        *("--ctx-size", str(setup.context_tokens)),
        *(("--threads", str(setup.threads)) if setup.threads else ()),
        *("--max-concurrent-requests", str(setup.slots), "--prefill-chunk", "512", *flags),
    ]


@contextmanager
def llama_server(setup: Setup) -> Iterator[LlamaServer]:
    """llama.cpp's server with `setup`."""
    numbers = (setup.context_tokens, setup.slots, setup.threads)
    words = [*map(str, numbers), *(["unified"] if setup.unified else [])]
    with running([sys.executable, str(HERE / "peer.py"), str(setup.model), *words]) as url:
        yield LlamaServer(url)


READY = r"^ready +(http://[^/\s]+)"


@contextmanager
def running(command: list[str], ready: str = READY) -> Iterator[str]:
    """Runs `command` until the block ends; gives what the first group of `ready` finds in its output."""
    with tempfile.NamedTemporaryFile("w+b", suffix=".log") as log:
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=log, stderr=log)
        try:
            yield wait_ready(process, Path(log.name), ready)
        finally:
            process.terminate()
            with suppress(subprocess.TimeoutExpired):
                process.wait(timeout=60)
            process.kill()
            process.wait()


def wait_ready(process: subprocess.Popen[bytes], log: Path, pattern: str = READY) -> str:
    """The URL a server that writes to `log` says it is ready at, or what else the first group of `pattern`
    finds. Raises RuntimeError where the server ends first."""
    deadline_s = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < deadline_s:
        ready = re.search(pattern, log.read_text(errors="replace"), re.MULTILINE)
        if ready:
            return ready.group(1)
        if process.poll() is not None:
            break
        time.sleep(0.05)
    raise RuntimeError(f"the server did not start: {log.read_text(errors='replace')[-3000:]}")
