"""Recordings: JSON lines, a header and then an exchange a line. Schema: docs/reference/recording.schema.json.

Only the owner can read the file. What is secret never reaches it, see `redaction`.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, BinaryIO

from headstart.blame.exchange import Dialect, Exchange, Reply, Timing, ToolCall, Usage
from headstart.blame.json_paths import digests
from headstart.blame.redaction import Redactor
from headstart.errors import ConfigError

FORMAT = "headstart-recording"
VERSION = 1


class Recorder:
    """Writes a new recording to `path`, or to a file that `new_file` opened. `bodies` false keeps of every
    text its SHA-256 only. Raises ConfigError where `path` cannot be made, or is there already."""

    def __init__(self, path: Path | int, upstream: str, *, bodies: bool = True) -> None:
        self._bodies = bodies
        self._redactor = Redactor()
        self._stream: BinaryIO = os.fdopen(path if isinstance(path, int) else new_file(path), "wb")
        header = {
            "format": FORMAT,
            "version": VERSION,
            "upstream": self._redactor.text(upstream),
            "started": time.time(),
            "bodies": bodies,
        }
        self._line(header)

    def write(self, exchange: Exchange) -> None:
        """One exchange, on disk when this returns. Raises OSError where the disk takes no more."""
        kept = redacted(exchange, self._redactor)
        self._line(to_json(kept if self._bodies else without_bodies(kept)))

    def close(self) -> None:
        self._stream.close()

    def _line(self, value: Mapping[str, Any]) -> None:
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
        try:
            line = text.encode()
        except UnicodeEncodeError:
            # Half a surrogate pair has no form in UTF-8, but one in JSON.
            line = json.dumps(value, separators=(",", ":")).encode()
        self._stream.write(line + b"\n")
        self._stream.flush()


def new_file(path: Path) -> int:
    """The descriptor of a new file that only the owner can read. Raises ConfigError."""
    try:
        number = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        os.fchmod(number, 0o600)
    except FileExistsError:
        raise ConfigError(
            f"--record {path}: there is such a file already, and recordings are not written over; choose "
            "another name or remove it"
        ) from None
    except OSError as problem:
        raise ConfigError(f"--record {path}: cannot be written ({problem.strerror})") from None
    return number


def redacted(exchange: Exchange, redactor: Redactor) -> Exchange:
    """`exchange` without keys, tokens, cookies and user ids."""
    reply = exchange.reply
    return replace(
        exchange,
        path=redactor.text(exchange.path),
        query=redactor.query(exchange.query),
        headers=redactor.headers(exchange.headers),
        reply_headers=redactor.headers(exchange.reply_headers),
        body=redactor.body(exchange.body),
        error=None if exchange.error is None else redactor.text(exchange.error),
        reply=replace(
            reply,
            text=redactor.text(reply.text),
            thinking=redactor.text(reply.thinking),
            calls=tuple(replace(call, arguments=redactor.text(call.arguments)) for call in reply.calls),
        ),
    )


def without_bodies(exchange: Exchange) -> Exchange:
    """`exchange` with the digests of what was said in place of it: the request's parts by their path, the
    reply's below `$reply`."""
    reply = exchange.reply
    said = {"text": reply.text, "thinking": reply.thinking, "calls": [asdict(call) for call in reply.calls]}
    kept = {} if exchange.body is None else digests(exchange.body)
    return replace(
        exchange,
        body=None,
        digests={**kept, **digests(said, "$reply")},
        reply=Reply(finish=reply.finish),
        error=exchange.error and exchange.error.partition(":")[0],
    )


def to_json(exchange: Exchange) -> dict[str, Any]:
    """An exchange as a recording has it."""
    told = {one.name: getattr(exchange, one.name) for one in fields(exchange)}
    parts = {name: asdict(told[name]) for name in ("reply", "usage", "timing")}
    return {**told, **parts}


def from_json(value: Any) -> Exchange:
    """The exchange in a line. Raises ValueError with a sentence where it is none."""
    try:
        told = {name: value[name] for name in _PLAIN if name in value}
        reply = {**value.get("reply", {})}
        calls = tuple(ToolCall(**call) for call in reply.pop("calls", ()))
        exchange = Exchange(
            dialect=Dialect(value["dialect"]),
            reply=Reply(**reply, calls=calls),
            usage=Usage(**value.get("usage", {})),
            timing=Timing(**value.get("timing", {})),
            notes=tuple(value.get("notes", ())),
            **told,
        )
        _check_types(exchange)
        return exchange
    except (KeyError, TypeError, ValueError, AttributeError) as problem:
        raise ValueError(f"not an exchange: {type(problem).__name__}: {problem}") from None


def _check_types(one: Exchange) -> None:
    """Raises TypeError for a field that is of no kind a recorder writes."""
    reply, usage, timing = one.reply, one.usage, one.timing
    texts = [one.path, one.method, one.query, reply.text, reply.thinking, *one.notes]
    texts += [part for call in reply.calls for part in (call.id, call.name, call.arguments)]
    for name, values, kinds in (
        ("a text", texts, (str,)),
        ("a text or null", [one.server, one.error, reply.finish], (str, type(None))),
        ("a whole number", [one.number], (int,)),
        ("a number", [one.started], (int, float)),
        ("a count or null", [one.status, usage.prompt, usage.cached, usage.completion], (int, type(None))),
        (
            "seconds or null",
            [timing.first_token, timing.total, timing.prefill, timing.load],
            (int, float, type(None)),
        ),
    ):
        if any(not isinstance(value, kinds) or isinstance(value, bool) for value in values):
            raise TypeError(f"what should be {name} is something else")
    for table in (one.headers, one.reply_headers):
        if not isinstance(table, dict) or not all(isinstance(text, str) for text in table.values()):
            raise TypeError("headers should be texts by name")


_PLAIN = (
    "number started path body status server headers digests error method query reply_headers".split()  # noqa: SIM905
)


@dataclass
class Recording:
    """Reads a recording while it is iterated. `header` is known after the first exchange, `problems` (what
    was passed over, by line) after the last."""

    path: Path
    header: Mapping[str, Any] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)

    def __iter__(self) -> Iterator[Exchange]:
        """Raises ConfigError where the file cannot be read."""
        self.header, self.problems = {}, []
        try:
            with self.path.open("rb") as stream:
                for number, line in enumerate(stream, 1):
                    yield from self._line(number, line)
        except OSError as problem:
            raise ConfigError(f"{self.path}: cannot be read ({problem.strerror})") from None
        if not self.header:
            self.problems.insert(
                0, f'no line with "format": "{FORMAT}": is this a recording of headstart watch?'
            )

    def _line(self, number: int, line: bytes) -> Iterator[Exchange]:
        if not line.strip():
            return
        try:
            value = json.loads(line.decode("utf-8-sig" if number == 1 else "utf-8"))
        except (ValueError, RecursionError):
            cut = "is cut off" if not line.endswith(b"\n") else "is not JSON"
            self.problems.append(f"line {number} {cut} and was passed over")
            return
        if isinstance(value, dict) and value.get("format") == FORMAT:
            self.header = self.header or value
            if value.get("version") != VERSION:
                self.problems.append(
                    f"line {number}: format version {value.get('version')!r}; this program reads {VERSION}"
                )
            return
        try:
            yield from_json(value)
        except ValueError as problem:
            self.problems.append(f"line {number} was passed over: {problem}")


def read(path: Path) -> Iterator[Exchange]:
    """The exchanges of a recording, without what was passed over: see `Recording` for that."""
    return iter(Recording(path))
