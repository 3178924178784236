"""What the scheduler takes and what it gives back: typed, with no dialect and no JSON in it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from headstart.errors import HeadstartError
from headstart.prefix.plan import PromptHints
from headstart.prefix.report import CacheReport
from headstart.prefix.tokens import TokenRun


@dataclass(frozen=True)
class Sampling:
    """How the next token is chosen. Temperature 0 is greedy; the defaults change nothing."""

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    seed: int | None = None


class ConstraintKind(StrEnum):
    JSON_SCHEMA = "json_schema"
    GRAMMAR = "grammar"
    REGEX = "regex"


@dataclass(frozen=True)
class ConstraintSpec:
    """The language a reply must belong to. `source`: the schema as JSON text, or the grammar."""

    kind: ConstraintKind
    source: str


@dataclass(frozen=True)
class GenerationRequest:
    """One prompt and how to continue it.

    `tenant` keeps the states of different API keys apart. `max_tokens` None means up to the end
    of the context. `top_logprobs` None means no log-probabilities; 0 means the chosen token's only.
    `shown`: control tokens that are spelled in the reply's text.
    """

    prompt: TokenRun
    max_tokens: int | None = None
    sampling: Sampling = field(default_factory=Sampling)
    stop: tuple[str, ...] = ()
    top_logprobs: int | None = None
    constraint: ConstraintSpec | None = None
    ignore_end: bool = False
    hints: PromptHints = field(default_factory=PromptHints)
    tenant: str = ""
    use_cache: bool = True
    shown: frozenset[int] = frozenset()


class FinishReason(StrEnum):
    STOP = "stop"
    LENGTH = "length"
    CANCELLED = "cancelled"


@dataclass(frozen=True)
class TokenLogprob:
    """A token and the natural logarithm of its probability before temperature and cuts."""

    token: int
    logprob: float


@dataclass(frozen=True)
class Timings:
    """Clock readings of one request, in seconds.

    `queued_s` from arrival to the engine's first work for it, `prefill_s` reading new and
    replayed tokens (restoring included), `decode_s` from the first to the last token,
    `first_token_s` from arrival to the first token out.
    """

    queued_s: float
    prefill_s: float
    decode_s: float
    first_token_s: float


@dataclass(frozen=True)
class PrefillDone:
    """The prompt is read. Comes before any Delta."""

    report: CacheReport


@dataclass(frozen=True)
class Delta:
    """What one decoded token adds: `text` may be empty while a character or a possible stop string
    is incomplete. `logprob` and `top` only where asked for."""

    token: int
    text: str
    logprob: float | None = None
    top: tuple[TokenLogprob, ...] = ()


@dataclass(frozen=True)
class Finished:
    """The end of a reply. `tail` is text that was held back and belongs to the reply after all.

    `completion_tokens` counts every token the model produced, the end token included. `drafted`,
    `accepted`: tokens that were guessed for it, and those of them that came out the same."""

    reason: FinishReason
    tail: str
    completion_tokens: int
    report: CacheReport
    timings: Timings
    stop: str | None = None
    drafted: int = 0
    accepted: int = 0


@dataclass(frozen=True)
class Failed:
    """The request ended without a reply."""

    error: HeadstartError


Event = PrefillDone | Delta | Finished | Failed
