"""`headstart accept --self-host MODEL`: headstart's own server on a model, judged on this machine."""

from __future__ import annotations

import argparse
import os
import shlex
import socket
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from headstart.errors import ConfigError


@contextmanager
def self_hosted(flags: argparse.Namespace) -> Iterator[argparse.Namespace]:
    """`flags` as they would be had the person given the server's commands: one with its cache, one without,
    on free ports, their state in a folder that goes afterwards. Raises ConfigError for flags that
    name another server."""
    given = {
        "a URL": flags.words,
        "--spawn": flags.spawn,
        "--restart-cmd": flags.restart_cmd,
        "--control-cmd": flags.control_cmd,
        "--control-url": flags.control_url,
    }
    for name, value in given.items():
        if value:
            raise ConfigError(f"--self-host starts the server itself: leave out {name}")
    try:
        extra = shlex.split(flags.serve_flags)
    except ValueError as error:
        raise ConfigError(f"--serve-flags: {error}") from None
    port, off_port = _free_ports()
    with tempfile.TemporaryDirectory(prefix="headstart-self-host-") as folder:
        serve = [sys.executable, "-m", "headstart", "serve", "--model", flags.self_host, *extra]
        serve += ["--base-path", str(Path(folder))]
        about = vars(flags) | {
            "words": [f"http://127.0.0.1:{port}"],
            "spawn": shlex.join([*serve, "--port", str(port)]),
            "control_cmd": shlex.join([*serve, "--port", str(off_port), "--no-cache"]),
            "control_url": f"http://127.0.0.1:{off_port}",
            "api_key": flags.api_key or os.environ.get("HEADSTART_API_KEY"),
        }
        yield argparse.Namespace(**about)


def _free_ports() -> tuple[int, int]:
    with socket.socket() as one, socket.socket() as other:
        for each in (one, other):
            each.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1]), int(other.getsockname()[1])
