"""The server's process, where the command line gave it to the harness: spawn, restart, kill."""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from headstart.errors import ConfigError

START_S = 300.0
STOP_S = 60.0
PREFIXES = ("OMLX_", "OLLAMA_", "LLAMA_", "MLX_", "HEADSTART_", "GGML_", "VLLM_", "SGLANG_", "LMS_")


def variable_names() -> tuple[str, ...]:
    """Names of the environment variables set that change servers. Never their values."""
    return tuple(sorted(name for name in os.environ if name.startswith(PREFIXES)))


class Spawned:
    """A server the harness starts from a command line, in a process group of its own.

    `ready`: whether it answers. `log`: where its output goes.
    """

    def __init__(self, command: str, ready: Callable[[], bool], log: Path, start_s: float = START_S) -> None:
        self._words = shlex.split(command)
        self._ready = ready
        self._log = log
        self._start_s = start_s
        self._process: subprocess.Popen[bytes] | None = None

    can_restart = True
    can_kill = True
    spawned = True

    def start(self) -> str | None:
        """Starts it and waits until it answers. None, or why it failed. Raises ConfigError for a command
        that cannot be run."""
        try:
            with self._log.open("ab") as output:
                self._process = subprocess.Popen(
                    self._words, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
                )
        except OSError as error:
            raise ConfigError(f"cannot run {self._words[0]!r}: {error.strerror}") from None
        return self._wait()

    def _wait(self) -> str | None:
        end_s = time.monotonic() + self._start_s
        while time.monotonic() < end_s:
            if self._process is not None and self._process.poll() is not None:
                return (
                    f"the server ended with status {self._process.returncode}; its output is in {self._log}"
                )
            if self._ready():
                return None
            time.sleep(0.2)
        return f"the server did not answer within {self._start_s:.0f} s; its output is in {self._log}"

    def stop(self) -> str | None:
        """SIGTERM, and after a minute SIGKILL. None, or why that was needed."""
        process, self._process = self._process, None
        if process is None or process.poll() is not None:
            return None
        process.terminate()
        try:
            process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self._end(process)
            return f"the server did not stop within {STOP_S:.0f} s of SIGTERM"
        return None

    def restart(self) -> str | None:
        return self.stop() or self.start()

    def kill(self) -> str | None:
        process, self._process = self._process, None
        if process is not None:
            self._end(process)
        return self.start()

    def died(self) -> str | None:
        """How the process ended, where the harness did not end it. None while it runs."""
        status = None if self._process is None else self._process.poll()
        if status is None:
            return None
        how = f"signal {-status} ({_signal_name(-status)})" if status < 0 else f"status {status}"
        return f"{how}; its output is in {self._log}"

    def _end(self, process: subprocess.Popen[bytes]) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return "unknown"


class RestartCommand:
    """A server somebody else started, with a command that restarts it."""

    can_restart = True
    can_kill = False
    spawned = False

    def __init__(self, command: str, ready: Callable[[], bool], start_s: float = START_S) -> None:
        self._words = shlex.split(command)
        self._ready = ready
        self._start_s = start_s

    def restart(self) -> str | None:
        try:
            done = subprocess.run(self._words, capture_output=True, timeout=self._start_s, check=False)
        except (OSError, subprocess.TimeoutExpired) as error:
            return f"the restart command failed: {error}"
        if done.returncode:
            return f"the restart command ended with status {done.returncode}"
        end_s = time.monotonic() + self._start_s
        while time.monotonic() < end_s:
            if self._ready():
                return None
            time.sleep(0.2)
        return f"the server did not answer within {self._start_s:.0f} s of the restart command"

    def died(self) -> str | None:
        return None

    def kill(self) -> str | None:
        return "only a server started with --spawn can be killed"


class CacheOff:
    """The same server with its cache off, for the gate control: implements `session.Baseline`.

    `command`: starts it at `url`; None: it runs already. `instead_of`: the server judged, where the two
    share an address, so that one has to stop for the other.
    """

    def __init__(self, url: str, command: Spawned | None, instead_of: Spawned | None = None) -> None:
        self.url = url
        self._command = command
        self._instead_of = instead_of
        self._stopped = False

    @property
    def spawned(self) -> bool:
        return self._command is not None

    def fresh(self) -> str | None:
        if self._command is None:
            return None
        if self._instead_of is not None and not self._stopped:
            self._stopped = True
            self._instead_of.stop()
        self._command.stop()
        return self._command.start()

    def stop(self) -> None:
        """Ends its process and leaves the server judged as it is."""
        if self._command is not None:
            self._command.stop()

    def end(self) -> str | None:
        self.stop()
        if self._instead_of is None or not self._stopped:
            return None
        self._stopped = False
        return self._instead_of.start()
