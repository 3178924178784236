"""A log of whatever format, from its first line to its last, in constant memory.

The first lines choose the format. A line that is not of it is offered to the other formats, so that mixed
logs are read too; what nobody understands is counted.
"""

from __future__ import annotations

import codecs
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import BinaryIO

from headstart.blame.logs.events import LogEvent
from headstart.blame.logs.headstart import Headstart
from headstart.blame.logs.llama_server import LlamaServer
from headstart.blame.logs.lmstudio import LmStudio
from headstart.blame.logs.mlx_lm import MlxLm
from headstart.blame.logs.ollama import Ollama
from headstart.blame.logs.omlx import Omlx
from headstart.blame.logs.parser import Parser
from headstart.blame.logs.vllm import Vllm

CHUNK_BYTES = 1 << 20
MAX_LINE = 1 << 16
LINES_TO_TELL = 5000
CHARS_TO_TELL = 1 << 21
_COLOUR = re.compile(r"\x1b\[[0-9;]{0,12}[A-Za-z]")

FORMATS: dict[str, Callable[[], Parser]] = {
    "llama-server": LlamaServer,
    "ollama": Ollama,
    "lmstudio": LmStudio,
    "omlx": Omlx,
    "vllm": Vllm,
    "mlx-lm": MlxLm,
    "headstart": Headstart,
}

# What only lines of this format have, any of which names it.
SIGNS: dict[str, tuple[str, ...]] = {
    "ollama": (' msg="', "msg=", "[GIN] "),
    "llama-server": (" | task ", "srv ", " time =", "print_info:", "cache state:", "llama_"),
    "vllm": ("Avg prompt throughput:", "Setting attention block size", "vLLM", "(APIServer", "loggers.py"),
    "lmstudio": ("Cache reuse summary:", "Prompt tokens to decode:", "Prompt cache restore:", "LM STUDIO"),
    "omlx": ("re-prefills", "omlx", "boundary_snapshot", "first divergence at token"),
    "mlx-lm": ("Prompt processing progress: ", "Prompt Cache: ", "Starting httpd at"),
    "headstart": (" headstart.",),
}


@dataclass
class Tally:
    """What became of the lines. `understood`: by format."""

    lines: int = 0
    nbytes: int = 0
    unknown: int = 0
    too_long: int = 0
    understood: Counter[str] = field(default_factory=Counter)


def detect(lines: Iterable[str]) -> str | None:
    """The format that most of the first lines belong to; None where none does. Ollama's own lines decide
    over those of the llama.cpp server inside it."""
    votes: Counter[str] = Counter()
    parsers = {name: make() for name, make in FORMATS.items()}
    for line in islice(lines, LINES_TO_TELL):
        for name, signs in SIGNS.items():
            if any(sign in line for sign in signs) and parsers[name].feed(line) is not None:
                votes[name] += 1 if name != "ollama" or "msg=" in line else 0
    if votes["ollama"] and votes["ollama"] * 20 >= votes["llama-server"]:
        return "ollama"
    best = votes.most_common(1)
    return best[0][0] if best and best[0][1] else None


class LogReader:
    """Events of a log's lines. `format`: None for what the first lines tell."""

    def __init__(self, format: str | None = None) -> None:
        self.format = format
        self.tally = Tally()
        self._first: list[str] | None = [] if format is None else None
        self._held_chars = 0
        self._parsers: dict[str, Parser] = {}

    def feed(self, lines: Sequence[str]) -> Iterator[LogEvent]:
        """What these lines say. The first lines of a log are held back until its format is known."""
        if self._first is not None:
            self._first += lines
            self._held_chars += sum(map(len, lines))
            if len(self._first) < LINES_TO_TELL and self._held_chars < CHARS_TO_TELL:
                return
            lines = self._told()
        yield from self._events(lines)

    def finish(self) -> Iterator[LogEvent]:
        """What was held back or begun when the log ended."""
        if self._first is not None:
            yield from self._events(self._told())
        for parser in self._parsers.values():
            yield from parser.finish()

    def _told(self) -> list[str]:
        held, self._first = self._first or [], None
        self.format = detect(held)
        return held

    def _events(self, lines: Sequence[str]) -> Iterator[LogEvent]:
        self.tally.lines += len(lines)
        if self.format is None:
            for line in lines:
                yield from self._other(line)
            return
        parser = self._parser(self.format)
        feed, others = parser.feed, 0
        for line in _of_interest(lines, parser):
            events = feed(line)
            if events is None:
                others += 1
                yield from self._other(line)
            elif events:
                yield from events
        self.tally.understood[self.format] += len(lines) - others

    def _other(self, line: str) -> Iterable[LogEvent]:
        """A line that the log's main format does not know."""
        for name, signs in SIGNS.items():
            if name != self.format and any(sign in line for sign in signs):
                events = self._parser(name).feed(line)
                if events is not None:
                    self.tally.understood[name] += 1
                    return events
        self.tally.unknown += bool(line.strip())
        return ()

    def _parser(self, name: str) -> Parser:
        if name not in self._parsers:
            self._parsers[name] = FORMATS[name]()
        return self._parsers[name]


def _of_interest(lines: Sequence[str], parser: Parser) -> Sequence[str]:
    """The lines but for those that the parser passes over: most of a log, so that it is read at the speed of
    the search for what they have in them."""
    if parser.passed_over_like is not None:
        dull = parser.passed_over_like.search
        lines = [line for line in lines if not dull(line)]
    for word in parser.passed_over:
        lines = [line for line in lines if word not in line]
    return lines


def events_of(
    stream: BinaryIO, reader: LogReader, progress: Callable[[int], None] | None = None
) -> Iterator[LogEvent]:
    """Events of a log file. `progress` is told the bytes read so far, once a chunk. Raises OSError."""
    decode = None
    rest = ""
    while chunk := stream.read(CHUNK_BYTES):
        if decode is None:
            decode = codecs.getincrementaldecoder(_encoding(chunk))(errors="replace").decode
        reader.tally.nbytes += len(chunk)
        text = rest + decode(chunk)
        lines = (_COLOUR.sub("", text) if "\x1b[" in text else text).split("\n")
        rest = lines.pop()
        if len(rest) > MAX_LINE:
            reader.tally.too_long += 1
            rest = rest[:MAX_LINE]
        yield from reader.feed([line if len(line) <= MAX_LINE else line[:MAX_LINE] for line in lines])
        if progress:
            progress(reader.tally.nbytes)
    yield from reader.feed([rest] if rest else [])
    yield from reader.finish()


def _encoding(start: bytes) -> str:
    """PowerShell redirects in UTF-16, with a mark in front."""
    if start.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16"
    return "utf-8-sig" if start.startswith(codecs.BOM_UTF8) else "utf-8"
