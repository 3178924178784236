"""The process beside `headstart watch`: judges what passed, records it and shows it."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import asdict, dataclass

from headstart.blame.beside import handed
from headstart.blame.depth import Depth
from headstart.blame.recording import Recorder
from headstart.blame.verdict import Judge, TurnVerdict
from headstart.blame.watcher import Watcher
from headstart.cli.finding_words import sums
from headstart.cli.readers import reader_of
from headstart.cli.terminal import Terminal
from headstart.cli.watch_lines import HEADINGS, Lines, as_json, sums_as_json

_NICE = 5
"""Where a core is wanted by the proxy, or by the server, it is theirs first."""


@dataclass(frozen=True)
class Job:
    """`recording`: descriptor of the new file, None without one. `bodies`: whether texts are recorded.
    `model`: whose template and tokenizer turns are compared with, as `readers` takes it."""

    upstream: str
    json: bool
    recording: int | None = None
    bodies: bool = True
    model: str | None = None

    def command(self) -> list[str]:
        """What runs this job: it is handed what passed on its standard input."""
        code = f"import sys; from {__name__} import main; main(sys.argv[1])"
        return [sys.executable, "-c", code, json.dumps(asdict(self))]


def main(text: str) -> None:
    """Does the job in `text` until the standard input ends, and then says what was lost in all."""
    job = Job(**json.loads(text))
    os.nice(_NICE)
    terminal = Terminal()
    recorder = None
    if job.recording is not None:
        recorder = Recorder(job.recording, job.upstream, bodies=job.bodies)
    lines = Lines()

    def show(verdict: TurnVerdict) -> None:
        print(as_json(verdict) if job.json else lines.of(verdict), flush=True)

    depth = None if job.model is None else Depth(reader_of(job.model))
    watcher = Watcher(Judge(depth), show, lambda trouble: terminal.step(f"watch: {trouble}"), recorder)
    if not job.json:
        print(HEADINGS, flush=True)
    for passing in handed(sys.stdin.buffer):
        watcher.take(passing)
    watcher.close()
    for problem, times in () if depth is None else depth.problems.items():
        terminal.step(f"--model: {problem} ({times} times)")
    totals = watcher.totals()
    if job.json:
        print(sums_as_json(totals), flush=True)
    elif totals:
        print(*sums(totals), sep="\n", flush=True)
