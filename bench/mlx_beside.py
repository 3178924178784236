"""headstart's MLX engine beside mlx_lm.server: speed, and prompt tokens read again.

    python bench/mlx_beside.py            about 15 minutes on two cores
    python bench/mlx_beside.py --quick    three minutes, numbers not worth quoting

The same small random-weight models, the same machine, one run, the servers taking turns. The CPU backend of
MLX is slow, so only ratios mean something. Tokens are bytes: headstart is sent token ids, mlx_lm.server the
same text. Needs the packages mlx and mlx-lm.
"""

from __future__ import annotations

import argparse
import socket
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import psutil

from machine import write_results
from mlx_models import CONFIGS, mlx_model
from prefix_reuse import Record, Trial, summary, table
from servers import FORCE, Ask, Headstart, Reply, Setup, headstart, running, stream
from workloads import WORKLOADS, Source, longest

LETTERS = 94
"""Token n below this is the character chr(33 + n) of ASCII."""
REPLY = [7] * 16
AT_ONCE = 4
SHORT = 40
"""Tokens of a reply whose decoding is timed."""


@dataclass
class MlxLmServer:
    """mlx_lm.server, asked through /v1/completions with text."""

    url: str
    name: str = "mlx_lm.server"

    def complete(self, ask: Ask) -> Reply:
        body: dict[str, Any] = {
            "prompt": "".join(chr(33 + token) for token in ask.prompt),
            "max_tokens": ask.count,
            "temperature": 0,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        if ask.force is not None:
            body["logit_bias"] = {str(ask.force): FORCE}
        events, first_s, wall_s = stream(self.url, "/v1/completions", body)
        usage = next(event["usage"] for event in reversed(events) if event.get("usage"))
        cached = usage["prompt_tokens_details"]["cached_tokens"]
        read, replied = usage["prompt_tokens"] - cached, usage["completion_tokens"]
        return Reply(usage["prompt_tokens"], read, replied, first_s, wall_s, first_s, wall_s - first_s)


@contextmanager
def mlx_lm_server(model: Path) -> Iterator[MlxLmServer]:
    """mlx_lm.server as it comes."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port = str(one.getsockname()[1])
    command = [sys.executable, "-m", "mlx_lm", "server", "--model", str(model), "--host", "127.0.0.1"]
    with running([*command, "--port", port], r"Starting httpd at .* on port (\d+)") as found:
        yield MlxLmServer(f"http://127.0.0.1:{found}")


Server = Headstart | MlxLmServer


def speed(model: Path, prefill: int, decode: int, repeats: int) -> dict[str, Any]:
    """Cold prefill, decode of one request, and decode of four at once; medians of rounds, and the medians of
    each round's ratios, which a machine that gets slower and quicker moves less. The servers change places
    every round. Decode is measured in many short replies to a prompt that both servers hold: one long one
    after each prefill was found to wander by a tenth. The model says what it likes best, at temperature 0."""
    source = Source(list(range(LETTERS)), 1)
    start = setup(model, prefill + decode, slots=AT_ONCE)
    with headstart(start, "--engine", "mlx") as ours, mlx_lm_server(model) as theirs:
        servers = (ours, theirs)
        for server in servers:
            server.complete(Ask(source.take(64), 4))

        def cold(server: Server) -> float:
            reply = server.complete(Ask(source.take(prefill), 1))
            return reply.prompt_tokens / reply.first_token_s

        held = source.take(prefill // 2)

        def short(server: Server) -> float:
            reply = server.complete(Ask(held, SHORT))
            return (reply.completion_tokens - 1) / (reply.wall_s - reply.first_token_s)

        def at_once(server: Server) -> float:
            return together(server, [source.take(16) for _ in range(AT_ONCE)], decode)

        found = {
            "prefill": rounds(servers, cold, repeats),
            "decode": rounds(servers, short, 5 * repeats),
            "decode_at_once": rounds(servers, at_once, repeats),
        }
    results: dict[str, Any] = {"prompt_tokens": prefill, "decode_tokens": SHORT, "rates": {}}
    for number, name in enumerate((Headstart.name, MlxLmServer.name)):
        results["rates"][name] = {
            f"{kind}_tokens_per_s": statistics.median(pair[number] for pair in pairs)
            for kind, pairs in found.items()
        }
    for kind, pairs in found.items():
        results[f"{kind}_rounds"] = len(pairs)
        results[f"{kind}_ratio"] = statistics.median(one / two for one, two in pairs)
    return results


def rounds(
    servers: tuple[Server, Server], measure: Callable[[Server], float], count: int
) -> list[tuple[float, float]]:
    """What `measure` gives for both, `count` times; the first of them has its turn first in every other."""
    pairs = []
    for number in range(-1, count):
        turns = servers if number % 2 else servers[::-1]
        found = {server.name: measure(server) for server in turns}
        if number >= 0:  # the first round warms up
            pairs.append((found[servers[0].name], found[servers[1].name]))
    return pairs


def together(server: Server, prompts: list[list[int]], decode: int) -> float:
    """Tokens a second of replies to all `prompts`, sent at once."""
    started_s = time.perf_counter()
    with ThreadPoolExecutor(len(prompts)) as pool:
        replies = list(pool.map(lambda prompt: server.complete(Ask(prompt, decode)), prompts))
    return sum(reply.completion_tokens for reply in replies) / (time.perf_counter() - started_s)


def reuse(name: str, model: Path, size: int) -> list[Record]:
    """Every workload, the servers taking turns at each."""
    text = list(range(LETTERS))
    trials = [Trial(name, workload, size, salt, text, REPLY) for salt, workload in enumerate(WORKLOADS)]
    talks = (WORKLOADS[trial.workload](Source(text, trial.salt), size) for trial in trials)
    records: list[Record] = []
    with ExitStack() as stack:
        ours = stack.enter_context(headstart(setup(model, longest(talks, REPLY)), "--engine", "mlx"))
        theirs = stack.enter_context(mlx_lm_server(model))
        for trial in trials:
            for server in (ours, theirs):
                print(f"{name}: {trial.workload}: {server.name}", file=sys.stderr)
                records += trial.run(server)
    return records


def setup(model: Path, context: int, slots: int = 1) -> Setup:
    return Setup(model, context + 64, threads=0, slots=slots)


def lines(results: dict[str, Any]) -> list[str]:
    """The results as Markdown tables."""
    rows = [f"| model | prefill | decode | decode, {AT_ONCE} at once |", "|---|---:|---:|---:|"]
    kinds = ("prefill_ratio", "decode_ratio", "decode_at_once_ratio")
    rows += [
        f"| {name} | {' | '.join(f'{one[kind]:.2f}' for kind in kinds)} |"
        for name, one in results["speed"].items()
    ]
    return [*rows, "", *table([Record(**step) for step in results["steps"]]).splitlines()]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--models", nargs="+", choices=CONFIGS, default=list(CONFIGS))
    parser.add_argument("--size", type=int, default=1024, help="tokens of a long prompt (default: 1024)")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--out", type=Path, help="folder for the results (default: bench/results)")
    options = parser.parse_args()
    size = 256 if options.quick else options.size
    numbers = (256, 16, 2) if options.quick else (1024, 96, 12)
    results: dict[str, Any] = {"size": size, "threads": psutil.cpu_count(logical=False) or 1, "speed": {}}
    records: list[Record] = []
    with tempfile.TemporaryDirectory() as folder:
        for name in options.models:
            model = mlx_model(name, Path(folder) / name)
            results["speed"][name] = speed(model, *numbers)
            records += reuse(name, model, size)
    results["steps"] = [asdict(record) for record in records]
    results["sums"] = {
        f"{name}, {server}": summary([r for r in records if (r.model, r.server) == (name, server)])
        for name, server in dict.fromkeys((r.model, r.server) for r in records)
    }
    print("\n".join(lines(results)))
    print(write_results("mlx_beside", results, *([options.out] if options.out else [])))


if __name__ == "__main__":
    main()
