"""`headstart explain RECORDING`: what passed through `headstart watch`, explained."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from headstart.blame.bodies import prompt_of
from headstart.blame.depth import Depth
from headstart.blame.exchange import Exchange, Usage
from headstart.blame.explanation import Explanation, explanation_of
from headstart.blame.finding import Culprit
from headstart.blame.har import to_har
from headstart.blame.hashed import readable, without_letters
from headstart.blame.page import page_of
from headstart.blame.recording import Recording
from headstart.blame.verdict import TurnVerdict, judge, reading_speed
from headstart.cli.cache_action import answer
from headstart.cli.explain_pair import show_pair
from headstart.cli.explain_text import text_of
from headstart.cli.new_file import write_new
from headstart.cli.readers import reader_of
from headstart.cli.terminal import Terminal
from headstart.errors import ConfigError, HeadstartError

__all__ = ["explained", "run", "show"]

QUIET_S = 1.0
MOST_NOTES = 5
NO_TEXTS = (
    "no texts were recorded, only their hashes: which part differs is known, but neither what it says nor "
    "where in it"
)
NOT_RENDERED = (
    "the prompts were compared as they were sent, not as the model reads them: --model (a GGUF file, a model "
    "folder or the server's URL) tells whether the chat template is to blame in place of the server"
)


def run(flags: argparse.Namespace) -> int:
    """Exit status 0: it was read. Raises ConfigError for a file that cannot be read or written,
    HeadstartError where nothing is in it."""
    path = Path(flags.words[0])
    recording = Recording(path)
    exchanges = [readable(exchange) for exchange in _with_progress(recording)]
    if not exchanges:
        why = f": {recording.problems[0]}" if recording.problems else ""
        raise HeadstartError(f"{path} has no exchange that can be read{why}")
    if flags.har is not None:
        har = to_har(exchanges, str(recording.header.get("upstream", "")))
        write_new(flags.har, json.dumps(har, ensure_ascii=False), flag="--har")
    elif flags.turns is not None:
        show_pair(_chosen(exchanges, flags.turns), flags, f"{path}, exchanges {flags.turns}")
    else:
        show(explained(exchanges, flags, recording.problems), flags, str(path))
    return 0


def _chosen(exchanges: list[Exchange], turns: str) -> tuple[Exchange, Exchange]:
    """Raises ConfigError where `turns` does not name two exchanges with bodies."""
    known = {exchange.number: exchange for exchange in exchanges}
    numbers = turns.split(",")
    try:
        first, second = (known[int(number)] for number in numbers)
        for one in (first, second):
            prompt_of(one.dialect, one.body)
    except KeyError:
        raise ConfigError(
            f"--turns {turns}: the recording has the exchanges {min(known)} to {max(known)}"
        ) from None
    except ValueError as problem:
        why = str(problem) if len(numbers) == 2 and all(one.strip().isdecimal() for one in numbers) else ""
        raise ConfigError(
            f"--turns {turns}: {why or 'expected the numbers of two exchanges, like 3,4'}"
        ) from None
    if second.number <= first.number:
        raise ConfigError(f"--turns {turns}: the second exchange must come after the first, like 3,4")
    if second.number > first.number + 1:
        # What the server had between both is not looked at, so its counts tell nothing of these two.
        first, second = replace(first, usage=Usage()), replace(second, usage=Usage())
    return first, second


def explained(
    exchanges: list[Exchange], flags: argparse.Namespace, problems: list[str] | None = None
) -> Explanation:
    """The verdicts on `exchanges`, with the template and tokenizer that `flags` name. Raises ConfigError."""
    depth = None if flags.model is None else Depth(reader_of(flags.model))
    verdicts = [
        verdict if _texts_of(verdict) else without_letters(verdict) for verdict in judge(exchanges, depth)
    ]
    notes = list(problems or [])
    if len(notes) > MOST_NOTES:
        notes = [*notes[:MOST_NOTES], f"and {len(notes) - MOST_NOTES} lines more were passed over"]
    if depth is not None:
        notes += [f"{text} ({times} times)" for text, times in depth.problems.items()]
    elif any(one.finding and one.finding.culprit is Culprit.SERVER for one in verdicts):
        notes.append(NOT_RENDERED)
    if any(exchange.digests for exchange in exchanges):
        notes.append(NO_TEXTS)
    return explanation_of(verdicts, reading_speed(exchanges), notes)


def _texts_of(verdict: TurnVerdict) -> bool:
    return not verdict.turn.exchange.digests


def show(told: Explanation, flags: argparse.Namespace, source: str) -> None:
    """As text, as JSON, and as a page where one is asked for."""
    if flags.html is not None:
        write_new(flags.html, page_of(told, Path(source).name), flag="--html")
        Terminal().step(f"the page is {flags.html}")
    if flags.json:
        answer(json_of(told))
    elif flags.html is None:
        for line in text_of(told, source):
            print(line)


def json_of(told: Explanation) -> dict[str, Any]:
    """For a program; what was not told is null."""
    return {
        "servers": told.servers,
        "tokens_per_second": told.tokens_per_s,
        "notes": told.notes,
        "totals": [
            {name: getattr(one, name) for name in ("cause", "turns", "tokens_lost", "seconds_lost")}
            for one in told.totals
        ],
        "conversations": [
            {
                "name": chapter.name or None,
                "tokens_read_again": chapter.lost,
                "turns": [asdict(row) for row in chapter.rows],
                "findings": [asdict(one) for one in chapter.told],
            }
            for chapter in told.chapters
        ],
    }


def _with_progress(recording: Recording) -> Iterator[Exchange]:
    """Tells how far it is once a second, from the second second on."""
    last, terminal = time.monotonic(), Terminal()
    for number, exchange in enumerate(recording, 1):
        now = time.monotonic()
        if now - last >= QUIET_S:
            last = now
            terminal.step(f"read {number:,} exchanges")
        yield exchange
