"""`headstart watch` as a program."""

from __future__ import annotations

import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field


@dataclass
class Program:
    """A running `headstart watch`. `facts`: what it said on stderr before it was ready."""

    process: subprocess.Popen[str]
    url: str = ""
    facts: list[str] = field(default_factory=list)
    shown: queue.Queue[str] = field(default_factory=queue.Queue)

    def line(self, seconds: float = 20) -> str:
        """The next line on stdout."""
        return self.shown.get(timeout=seconds)

    def stop(self, number: signal.Signals = signal.SIGINT) -> int:
        self.process.send_signal(number)
        return self.process.wait(20)


@contextmanager
def watching(upstream: str, *flags: str) -> Iterator[Program]:
    """`headstart watch --upstream UPSTREAM FLAGS` on a free port."""
    command = [
        sys.executable,
        "-m",
        "headstart",
        "watch",
        "--upstream",
        upstream,
        "--listen",
        "127.0.0.1:0",
        *flags,
    ]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ.copy()
    )
    program = Program(process)
    assert process.stderr is not None
    assert process.stdout is not None
    stdout = process.stdout
    try:
        for line in process.stderr:
            program.facts.append(line.rstrip("\n"))
            if line.startswith("ready"):
                program.url = line.split()[1]
                break
        assert program.url, program.facts
        threading.Thread(target=lambda: [program.shown.put(one) for one in stdout], daemon=True).start()
        yield program
    finally:
        process.kill()
        process.wait()
