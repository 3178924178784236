"""Results as data: what results.json holds. `form` reads them back and derives schema.json from them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from enum import Enum
from typing import Any

from headstart.accept.verdict import Outcome

FORMAT = 1
"""Raised when a field changes its meaning or goes."""


@dataclass(frozen=True)
class TargetEntry:
    """The server that was judged. `url`: without user and password. `facts`: what it states about
    itself, in words. `digest`: of the model's weights, from --model-dir or the server."""

    url: str
    server: str
    version: str | None
    model: str | None
    wire: str
    context_tokens: int | None
    slots: int | None
    block_tokens: int | None
    digest: str | None
    facts: Mapping[str, str]


@dataclass(frozen=True)
class MachineEntry:
    """Where the harness ran. `variables`: names of the environment variables set that change servers,
    never their values."""

    system: str
    processor: str
    cores: int
    memory_bytes: int | None
    python: str
    variables: Sequence[str]


@dataclass(frozen=True)
class TierEntry:
    """A tier. `skipped`: why it was not run, None where it was. Times: time to the first token."""

    name: str
    nominal_tokens: int
    prompt_tokens: int | None = None
    skipped: str | None = None
    cold_s: Sequence[float] = ()
    warm_s: Sequence[float] = ()
    warm_reused: Sequence[int | None] = ()
    off_s: Sequence[float] = ()
    """With the cache off (gate control)."""


@dataclass(frozen=True)
class CalibrationEntry:
    """What was measured before the first gate."""

    base_s: float
    read_s_per_token: float
    warm_s: float
    decode_s_per_token: float
    chars_per_token: float
    overhead_tokens: int
    question: str | None
    floor_score: float | None
    floor_text: bool


@dataclass(frozen=True)
class VerdictEntry:
    """One line of the table, with the gate's title and how long the gate took (the same on each of its
    lines)."""

    gate: str
    title: str
    tier: str | None
    part: str
    outcome: Outcome
    reason: str
    figures: Mapping[str, int | float | str | bool | None]
    cases: Sequence[str]


@dataclass(frozen=True)
class CaseEntry:
    """One exchange. `at_s`: when it was sent, from the start of the run. `read_by_server`,
    `reused_by_server`: what the server's counters rose by. `divergence`: low and high, where the gate
    knows it. `answer_sha256`: of the reply's text. `failure`: kind and detail. The folder cases/<id>
    holds request, raw stream, events, counters and answer."""

    id: str
    gate: str
    tier: str | None
    label: str
    wire: str
    at_s: float
    total_s: float
    first_token_s: float | None
    prompt_tokens: int | None
    completion_tokens: int | None
    reused: int | None
    read_by_server: float | None
    reused_by_server: float | None
    answer: str
    """The first 200 characters."""
    answer_sha256: str
    finish: str | None
    failure: str | None


@dataclass(frozen=True)
class SweepEntry:
    """One point of the gap sweep, in tokens."""

    divergence_low: int
    divergence_high: int
    restored: int | None
    gap: int | None
    waited_s: float
    case: str


@dataclass(frozen=True)
class GateEntry:
    """A gate that ran or was to run, in order. `took_s` None: it did not run."""

    name: str
    title: str
    shows: str
    took_s: float | None
    started_s: float | None
    """From the start of the run."""


@dataclass(frozen=True)
class Results:
    """A run. `complete` False: it was stopped before its end, and what is here is right so far."""

    format: int
    tool_version: str
    started: float
    """Unix time."""
    took_s: float
    complete: bool
    salt: str
    target: TargetEntry
    machine: MachineEntry
    calibration: CalibrationEntry | None
    tiers: Sequence[TierEntry] = ()
    gates: Sequence[GateEntry] = ()
    verdicts: Sequence[VerdictEntry] = ()
    cases: Sequence[CaseEntry] = ()
    sweep: Sequence[SweepEntry] = ()
    sweep_words: str | None = None
    notes: Sequence[str] = field(default_factory=tuple)

    def to_json(self) -> dict[str, Any]:
        """Plain dicts and lists, fit for json.dump."""
        plain = _plain(self)
        assert isinstance(plain, dict)
        return plain


def _plain(value: Any) -> Any:
    if is_dataclass(value):
        return {f.name: _plain(getattr(value, f.name)) for f in fields(value)}
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value
