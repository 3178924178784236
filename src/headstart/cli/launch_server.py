"""The server behind `headstart launch`: the one that runs, or one for as long as the agent does."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from http.client import HTTPException
from pathlib import Path
from urllib.parse import urlsplit

from headstart.cli.launch_agents import Target
from headstart.cli.terminal import Terminal
from headstart.errors import ConfigError, EngineError

ASK_S = 5.0
START_S = 600.0
STOP_S = 60.0


def found(target: Target) -> Target | None:
    """The server at `target` with its model's name and context; None where nothing answers. Raises
    ConfigError where something else does, or it wants another key."""
    headers = {"Authorization": f"Bearer {target.key}"} if target.key else {}
    try:
        request = urllib.request.Request(f"{target.url}/v1/models", headers=headers)
        with urllib.request.urlopen(request, timeout=ASK_S) as reply:
            told = json.loads(reply.read())
        model = told["data"][0]
        return replace(target, model=model["id"], context_tokens=model["headstart"]["context_tokens"])
    except urllib.error.HTTPError as problem:
        if problem.code in (401, 403):
            raise ConfigError(
                f"{target.url} wants a key: give it with --api-key or HEADSTART_API_KEY"
            ) from None
        raise ConfigError(
            f"{target.url} answers {problem.code} to GET /v1/models: is it headstart?"
        ) from None
    except ConnectionError:
        return None
    except (urllib.error.URLError, HTTPException, TimeoutError) as problem:
        reason = getattr(problem, "reason", problem)
        if isinstance(reason, ConnectionError):
            return None
        raise ConfigError(f"--url {target.url} cannot be asked: {reason}") from None
    except (KeyError, IndexError, TypeError, ValueError):
        raise ConfigError(
            f"another server than headstart answers at {target.url}; give --url of one, or of a free port"
        ) from None


@contextmanager
def started(target: Target, serve_flags: str, terminal: Terminal) -> Iterator[Target]:
    """A server at `target` until the block ends. Raises ConfigError for an address or flags that cannot be
    used, EngineError where it does not come up."""
    parts = urlsplit(target.url)
    if parts.scheme != "http" or parts.hostname not in ("127.0.0.1", "localhost", "::1"):
        raise ConfigError(f"nothing answers at {target.url}, and a server is started on this machine only")
    try:
        extra = shlex.split(serve_flags)
    except ValueError as problem:
        raise ConfigError(f"--serve-flags: {problem}") from None
    address = ["--host", str(parts.hostname), "--port", str(parts.port or 80)]
    command = [sys.executable, "-m", "headstart", "serve", *address, *extra]
    with tempfile.TemporaryDirectory(prefix="headstart-launch-") as folder:
        log = Path(folder) / "serve.log"
        with log.open("wb") as stream:
            # A session of its own: an interrupt at the terminal is for the agent.
            process = subprocess.Popen(command, stderr=stream, start_new_session=True)
        try:
            terminal.step(f"nothing answers at {target.url}: starting a server there")
            yield _ready(target, process, log)
        finally:
            process.terminate()
            try:
                process.wait(STOP_S)
            except subprocess.TimeoutExpired:
                process.kill()
    terminal.step("the server has stopped")


def _ready(target: Target, process: subprocess.Popen[bytes], log: Path) -> Target:
    deadline_s = time.monotonic() + START_S
    while time.monotonic() < deadline_s:
        running = found(target)
        if running is not None:
            return running
        if process.poll() is not None:
            break
        time.sleep(0.1)
    said = log.read_text(encoding="utf-8", errors="replace").strip()
    raise EngineError(f"the server did not start: {said[-2000:]}")
