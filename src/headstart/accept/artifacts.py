"""The results directory: one folder a case, results.json, and nothing that is secret."""

from __future__ import annotations

import hashlib
import html
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NoReturn
from xml.sax import saxutils

from headstart.accept.exchange import Counters, Exchange
from headstart.accept.report.files import as_json
from headstart.accept.report.results import CaseEntry, Results
from headstart.errors import ConfigError

ANSWER_CHARS = 200
_SECRET_FIELD = re.compile(
    r'("[^"]*(?:api_?key|secret|password|authorization|access_?token)"\s*:\s*")(?:[^"\\]|\\.)*', re.IGNORECASE
)
HIDDEN = "(hidden)"


class Redaction:
    """Takes secrets out of text: those given, and the values of fields that are named like one."""

    def __init__(self, secrets: Sequence[str | None]) -> None:
        self._secrets = sorted({form for secret in secrets if secret for form in _forms(secret)}, key=len)

    def clean(self, text: str) -> str:
        for secret in reversed(self._secrets):
            text = text.replace(secret, HIDDEN)
        return _SECRET_FIELD.sub(rf"\1{HIDDEN}", text)


def _forms(secret: str) -> Iterator[str]:
    """A secret as it stands, and as it is written inside JSON, HTML and XML."""
    yield secret
    yield json.dumps(secret)[1:-1]
    yield json.dumps(secret, ensure_ascii=False)[1:-1]
    yield html.escape(secret, quote=False)
    yield html.escape(secret)
    yield saxutils.quoteattr(secret)[1:-1]


@dataclass(frozen=True)
class CaseRecord:
    """An exchange with where it belongs. `at_s`: from the start of the run."""

    exchange: Exchange
    gate: str
    tier: str | None
    wire: str
    at_s: float
    before: Counters | None
    after: Counters | None


def case_entry(record: CaseRecord) -> CaseEntry:
    """The line of results.json for a case."""
    done = record.exchange
    counted = done.counters or Counters()
    failure = None if done.failure is None else f"{done.failure.kind}: {done.failure.detail}"
    return CaseEntry(
        id=done.case,
        gate=record.gate,
        tier=record.tier,
        label=done.ask.label,
        wire=record.wire,
        at_s=record.at_s,
        total_s=done.total_s,
        first_token_s=done.first_token_s,
        prompt_tokens=done.prompt_tokens,
        completion_tokens=done.completion_tokens,
        reused=done.reused,
        read_by_server=counted.read_tokens,
        reused_by_server=counted.reused_tokens,
        answer=done.text[:ANSWER_CHARS],
        answer_sha256=hashlib.sha256(done.text.encode("utf-8", "backslashreplace")).hexdigest(),
        finish=done.finish,
        failure=failure,
    )


class Folder:
    """A results directory of one run, made when there is something to write. Raises ConfigError where it
    exists already."""

    def __init__(self, path: Path, redaction: Redaction) -> None:
        self.path = path
        self._redaction = redaction
        self._made = False
        if path.exists():
            self._refuse()

    def make(self) -> None:
        """Makes the directory, where it is not there yet."""
        if self._made:
            return
        try:
            self.path.mkdir(parents=True)
            self._made = True
        except FileExistsError:
            self._refuse()
        except OSError as error:
            raise ConfigError(f"cannot make the results directory {self.path}: {error.strerror}") from None

    @property
    def made(self) -> bool:
        return self._made

    def _refuse(self) -> NoReturn:
        raise ConfigError(
            f"{self.path} exists already; results of two runs are never mixed, so name another directory"
        ) from None

    def case(self, record: CaseRecord) -> None:
        """Writes cases/<id>/."""
        self.make()
        folder = self.path / "cases" / record.exchange.case
        folder.mkdir(parents=True, exist_ok=True)
        done = record.exchange
        self._write(folder / "request.json", done.request_body.decode("utf-8", "replace"))
        self._write(folder / "reply.raw", done.raw.decode("utf-8", "replace"))
        self._write(folder / "answer.txt", done.text)
        self._write(folder / "exchange.json", _dump(_described(record)))
        if done.events:
            lines = (json.dumps({"at_s": round(e.at_s, 6), "data": e.data}) for e in done.events)
            self._write(folder / "events.jsonl", "\n".join(lines) + "\n")

    def results(self, results: Results) -> None:
        """Writes results.json in one step, so that a reader never sees half of it."""
        self.make()
        waiting = self.path / "results.json.part"
        self._write(waiting, as_json(results))
        waiting.replace(self.path / "results.json")

    def file(self, name: str, text: str) -> None:
        """Writes a report beside results.json."""
        self.make()
        self._write(self.path / name, text)

    def _write(self, path: Path, text: str) -> None:
        """Half a surrogate pair, which a server's JSON can hold and UTF-8 cannot, becomes an escape."""
        path.write_bytes(self._redaction.clean(text).encode("utf-8", "backslashreplace"))


def _dump(value: Any) -> str:
    return json.dumps(value, indent=1, ensure_ascii=False, default=str) + "\n"


def _described(record: CaseRecord) -> dict[str, Any]:
    """exchange.json: everything but the texts that have files of their own."""
    done = record.exchange
    return {
        **asdict(case_entry(record)),
        "status": done.status,
        "reasoning": done.reasoning,
        "server_prompt_s": done.server_prompt_s,
        "server_decode_s": done.server_decode_s,
        "usage": dict(done.usage),
        "warnings": list(done.warnings),
        "scores": [asdict(score) for score in done.scores],
        "counters_before": None if record.before is None else dict(record.before.all),
        "counters_after": None if record.after is None else dict(record.after.all),
    }
