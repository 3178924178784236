"""What a gate may use: the server, texts, a record of every exchange, and what is known so far.

A gate sends through the session only. Every exchange is a case in the results directory; its id is
`Exchange.case`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from headstart.accept.exchange import Ask, Counters, Exchange, Message
from headstart.accept.fixtures import Family, Passage, Tier
from headstart.accept.judge import TOLERANCE, Calibration, Reach, Sameness
from headstart.accept.servers import Facts, Http, Server
from headstart.accept.wires import Wire


@dataclass(frozen=True)
class Options:
    """What the command line chose. `tiers`: smallest first. `patience_s`: how long nothing may come
    before a request counts as hung. `samples`: how often a timing is taken. `concurrency`: requests at
    once where a gate sends several. `churn_prompts`: unrelated prompts the churn gate sends at most.
    `other_model`: for the model switch."""

    tiers: tuple[Tier, ...]
    model: str | None = None
    samples: int = 3
    patience_s: float = 600.0
    tolerance: float = TOLERANCE
    """Difference of a log-probability that reading in other pieces may make."""
    concurrency: int = 4
    churn_prompts: int = 24
    sweep_points: int = 30
    """Edits of the gap sweep at most."""
    other_model: str | None = None
    model_dir: str | None = None


class Control(Protocol):
    """The server's process, as far as the command line gave it to the harness (accept/process.py)."""

    @property
    def can_restart(self) -> bool: ...
    @property
    def can_kill(self) -> bool: ...
    @property
    def spawned(self) -> bool:
        """The process is the harness's own, so a fresh one starts with nothing in memory."""
        ...

    def died(self) -> str | None:
        """How a process of the harness's own ended by itself. None while it runs, or it is not its own."""
        ...

    def restart(self) -> str | None:
        """Stops it gracefully, starts it and waits until it answers. None, or why it failed."""
        ...

    def kill(self) -> str | None:
        """SIGKILL, then starts it and waits until it answers. None, or why it failed."""
        ...


class Baseline(Protocol):
    """The same server with its cache off: --control-cmd or --control-url."""

    @property
    def url(self) -> str:
        """For `Session.send(base_url=...)`."""
        ...

    @property
    def spawned(self) -> bool:
        """Its process is the harness's own, so `fresh` gives a new one. Otherwise it stays as it is."""
        ...

    def fresh(self) -> str | None:
        """A new process that answers, the old one ended; the server judged may have had to stop for it.
        None, or why it failed."""
        ...

    def end(self) -> str | None:
        """Ends its process; the server judged answers again. None, or why it does not."""
        ...


@dataclass(frozen=True)
class SweepPoint:
    """One measured edit: where the prompts part (tokens) and how much was restored (None: unknown)."""

    divergence: Reach
    restored: int | None
    waited_s: float
    case: str


@dataclass
class Found:
    """What gates leave for later gates and the report. Written by the gate named, read by anyone.

    `cold`: by tier, first-sight exchanges of fresh families; `families`: those families, in the same
    order (both are filled by `Session.first_sight` and the gate cold).
    `warm`: by tier, exact repeats. `sweep`: of gap_sweep. `step_tokens`: the granularity it found.
    `control`: by tier, the cache-off samples of the gate control.
    """

    cold: dict[str, list[Exchange]] = field(default_factory=dict)
    families: dict[str, list[Family]] = field(default_factory=dict)
    warm: dict[str, list[Exchange]] = field(default_factory=dict)
    sweep: list[SweepPoint] = field(default_factory=list)
    step_tokens: int | None = None
    control: dict[str, list[Exchange]] = field(default_factory=dict)


class Session(Protocol):
    """The interface gates are written against. `live.LiveSession` is the real one.

    `wire`: the wire answers are judged on. `wires`: every wire found to work on this server, `wire`
    first. `calibration`: measured before the first gate. `control`: None without --spawn or
    --restart-cmd. `baseline`: None without --control-cmd or --control-url.
    """

    options: Options
    server: Server
    facts: Facts
    http: Http
    wire: Wire
    wires: Sequence[Wire]
    calibration: Calibration
    control: Control | None
    baseline: Baseline | None
    found: Found

    @property
    def tiers(self) -> tuple[Tier, ...]:
        """Tiers that fit into the server's context, smallest first. Those that do not have had their
        verdict from the runner."""
        ...

    @property
    def small(self) -> Tier:
        """The size for gates whose question is no other for a long prompt: about 2,048 tokens, the smallest
        tier where that is smaller, or where a prompt of that size is read too quickly to tell. There must
        be a tier. Verdicts name it as any tier."""
        ...

    def say(self, text: str) -> None:
        """One line of progress for the person who waits."""
        ...

    # -- texts --------------------------------------------------------------------------------

    def family(self) -> Family:
        """A new family, fitted to the tiers by the server's own count. Costs no reading of a whole
        tier."""
        ...

    def fresh(self, tier: Tier) -> Passage:
        """A text of `tier` (or of `small`) that was never sent."""
        ...

    def refit(self, tier: Tier, passage: Passage, done: Exchange) -> None:
        """Makes the texts of later families longer or shorter, by what the server counted for `passage`."""
        ...

    def passage(self, tokens: int) -> Passage:
        """A new salted text of about `tokens` tokens (question and template included), with the marker
        EARLY in its middle. Within a few percent; `Exchange.prompt_tokens` tells."""
        ...

    def ask(self, passage: Passage, *, marker: str | None = None, **changes: Any) -> Ask:
        """The passage followed by the question the model can answer, for the session's wire.

        `marker`: which one is asked for where only one can be (default: the deepest). `changes`: fields
        of Ask (stream=False, label="...", max_tokens=..., options={...}, model=...). Log-probabilities
        are asked for where the wire has them. Two passages get the same question, so texts that part only at
        their end still part before it.
        """
        ...

    def first_sight(self, tier: Tier) -> tuple[Family, Exchange]:
        """The newest family whose text of this tier was sent, with that first exchange (question about
        its deepest marker); sends one where there is none, and the same once more where the cache was
        emptied for a cold answer since. `tier`: one of `tiers`, or `small`. Gates that only need a text the
        server has read take this, so that long prompts are not read more often than needed. What other
        prompts or a restart may have pushed out is no longer there."""
        ...

    @property
    def head_tokens(self) -> int:
        """Most tokens that prompts of two families share (template, first digits of the salt): reuse up
        to here is right on first sight."""
        ...

    def converse(self, messages: Sequence[Message], **changes: Any) -> Ask:
        """A conversation as an Ask of the session's wire (as plain text where the wire is not a chat)."""
        ...

    def heard(self, exchange: Exchange, name: str) -> str | None:
        """The value the reply gives for marker `name`; "NA" where it says absent, None where it does
        not answer. A COPY reply answers only for the marker that was asked."""
        ...

    # -- asking -------------------------------------------------------------------------------

    def send(
        self,
        ask: Ask,
        *,
        tier: Tier | None = None,
        cancel_after_s: float | None = None,
        wire: Wire | None = None,
        base_url: str | None = None,
    ) -> Exchange:
        """Sends, waits and records. Never raises for what the server does.

        `cancel_after_s`: closes the connection after that time (FailureKind.CANCELLED, unless the reply
        was complete before). `wire`: another one than the session's; the ask must suit it (`convert`).
        `base_url`: another server (the control).
        """
        ...

    def send_together(self, asks: Sequence[Ask], *, tier: Tier | None = None) -> list[Exchange]:
        """All at once, each on its own connection; in the order given. Their `counters` are None."""
        ...

    def convert(self, ask: Ask, wire: Wire) -> Ask:
        """The same content for another wire: messages from prompt or the other way round."""
        ...

    def cold(self, ask: Ask, *, tier: Tier | None = None) -> Exchange | None:
        """The answer to exactly this prompt without a cache: by the server's own switch for one request
        (`Server.no_cache`), else by emptying its cache. Read once a run; equal prompts share it. None
        where neither is offered, or where its own numbers or the clock say that something was reused all
        the same."""
        ...

    def counters(self) -> Counters | None:
        """The server's numbers now; None where it has none."""
        ...

    # -- judging ------------------------------------------------------------------------------

    def divergence(self, before: Ask, after: Ask) -> Reach:
        """How many leading tokens two prompts share, by the server's own tokenizer; a range where it
        has none (by counting, exact to the template's overhead)."""
        ...

    @property
    def allowance(self) -> int:
        """Largest gap, in tokens, that is no fault: the block size the server states, else the
        granularity found so far, 512 at most, plus the one token that must always be read."""
        ...

    def same(
        self, cold: Exchange, warm: Exchange, passage: Passage | None = None, marker: str | None = None
    ) -> Sameness:
        """`judge.same` with this session's floor and tolerance. With the `passage` that was asked about,
        planted facts count too, where the model got them right cold."""
        ...

    def facts_right(self, exchange: Exchange, passage: Passage, marker: str | None = None) -> bool | None:
        """Whether the reply gives the values of `passage` (None: this model cannot be asked)."""
        ...
