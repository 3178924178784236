"""What does `headstart accept` find on headstart and on other servers?

    python bench/accept_runs.py headstart-gemma3 llama-server-gemma3      chosen servers, one after another
    python bench/accept_runs.py --tiers 1k --churn-prompts 2 headstart-smollm2
    python bench/accept_runs.py --list

Each server is started by the harness, with its defaults but for what SERVERS says, so restart and crash are
judged too. Kept in results/accept/NAME: results.json, report.html, junit.xml; not the single exchanges.
Nothing else should run on the machine: times are judged. Where SmolLM2 reads 100 tokens a second, 8k
takes about an hour.

mlx-lm needs the packages mlx and mlx-lm, llama-cpp-python's server its extra `server`; --python names an
interpreter that has them.
"""

from __future__ import annotations

import argparse
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from machine import RESULTS
from models import MODELS
from tiny_mlx import tiny_mlx

HERE = Path(__file__).parent


@dataclass(frozen=True)
class Place:
    """Where one run's server lives. `python`: the interpreter that has its packages."""

    python: str
    port: int
    off_port: int
    base: Path


@dataclass(frozen=True)
class Served:
    """How a server is started. `tiers`: what it is asked at. `off`: the same server without a cache."""

    tiers: str
    start: Callable[[Place], list[str]]
    off: Callable[[Place], list[str]] | None = None


def headstart(model: str, *flags: str) -> Callable[[Place], list[str]]:
    def command(place: Place) -> list[str]:
        port = place.off_port if "--no-cache" in flags else place.port
        path, base = str(MODELS[model]()), str(place.base / "headstart")
        words = [place.python, "-m", "headstart", "serve", "--model", path, "--model-name", model]
        return [*words, "--port", str(port), "--base-path", base, *flags]

    return command


def llama_server(model: str, *words: str) -> Callable[[Place], list[str]]:
    def command(place: Place) -> list[str]:
        port = place.off_port if "no-cache" in words else place.port
        script = str(HERE / "default_peer.py")
        return [place.python, script, str(MODELS[model]()), model, str(port), *words]

    return command


def llama_cpp_python(model: str, context: int) -> Callable[[Place], list[str]]:
    def command(place: Place) -> list[str]:
        words = [place.python, "-m", "llama_cpp.server", "--model", str(MODELS[model]())]
        words += ["--model_alias", model, "--n_ctx", str(context), "--host", "127.0.0.1"]
        return [*words, "--port", str(place.port)]

    return command


def mlx_lm(place: Place) -> list[str]:
    model = place.base / "tiny-llama"
    if not model.exists():
        tiny_mlx(place.python, MODELS["smollm2"](), model)
    words = [place.python, "-m", "mlx_lm", "server", "--model", str(model), "--port", str(place.port)]
    return [*words, "--host", "127.0.0.1"]


SERVERS: dict[str, Served] = {
    "headstart-smollm2": Served("8k", headstart("smollm2"), headstart("smollm2", "--no-cache")),
    "headstart-gemma3": Served("8k", headstart("gemma3"), headstart("gemma3", "--no-cache")),
    "headstart-gemma3-32k": Served("8k,32k", headstart("gemma3"), headstart("gemma3", "--no-cache")),
    "llama-server-smollm2": Served("8k", llama_server("smollm2"), llama_server("smollm2", "no-cache")),
    "llama-server-gemma3": Served("8k", llama_server("gemma3"), llama_server("gemma3", "no-cache")),
    "llama-cpp-python-gemma3": Served("8k", llama_cpp_python("gemma3", 8192)),
    "mlx-lm-tiny": Served("8k", mlx_lm),
}


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def run(name: str, options: argparse.Namespace, rest: list[str]) -> int:
    """One server's run; answers accept's exit status."""
    served = SERVERS[name]
    with tempfile.TemporaryDirectory(prefix="headstart-accept-") as folder:
        base = Path(folder)
        place = Place(options.python, free_port(), free_port(), base)
        command = [sys.executable, "-m", "headstart", "accept", f"http://127.0.0.1:{place.port}"]
        command += ["--out", str(base / "out"), "--tiers", options.tiers or served.tiers]
        command += ["--spawn", shlex.join(served.start(place))]
        if served.off is not None:
            command += ["--control-cmd", shlex.join(served.off(place))]
            command += ["--control-url", f"http://127.0.0.1:{place.off_port}"]
        status = subprocess.run([*command, *rest], check=False).returncode
        kept = options.out / name
        kept.mkdir(parents=True, exist_ok=True)
        for file in ("results.json", "report.html", "junit.xml"):
            if (base / "out" / file).exists():
                shutil.copy(base / "out" / file, kept / file)
    return status


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="servers (see --list)")
    parser.add_argument("--list", action="store_true", help="names of the servers")
    parser.add_argument("--tiers", help="in place of the server's own")
    parser.add_argument("--python", default=sys.executable, help="interpreter the servers run in")
    parser.add_argument("--out", type=Path, default=RESULTS / "accept", help="default: results/accept")
    options, rest = parser.parse_known_args()
    if options.list:
        print("\n".join(SERVERS))
        return
    unknown = [name for name in options.names if name not in SERVERS]
    if unknown or not options.names:
        parser.error(f"name one of: {', '.join(SERVERS)}")
    for name in options.names:
        print(f"{name} ...", flush=True)
        print(f"{name}: exit status {run(name, options, rest)}", flush=True)


if __name__ == "__main__":
    main()
