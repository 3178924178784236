"""A session without a server: a made-up cache answers, and single exchanges are bent by their labels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from headstart.accept import judge
from headstart.accept.exchange import Ask, Counters, Exchange, Failure, FailureKind, Message, Score
from headstart.accept.fixtures import Family, Marker, Passage, QuestionKind, Tier
from headstart.accept.judge import Calibration, Floor, Reach, Sameness
from headstart.accept.servers import Facts
from headstart.accept.session import Found, Options

TIERS = (Tier("1k", 1024), Tier("2k", 2048))
CALIBRATION = Calibration(
    base_s=0.1,
    read_s_per_token=0.01,
    warm_s=0.1,
    decode_s_per_token=0.01,
    chars_per_token=5.0,
    overhead_tokens=4,
    question=QuestionKind.COPY,
    floor=Floor(0.0, True),
)
HEAD = 6
SERVER_ERROR = Failure(FailureKind.SERVER_ERROR, "the server answered 500: out of memory", 500)
HUNG = Failure(FailureKind.HUNG, "nothing came for 600 s")
REFUSED = Failure(FailureKind.REFUSED, "the server answered 400: no such model", 400)
FAILURES = (SERVER_ERROR, HUNG, REFUSED)


@dataclass(frozen=True)
class Named:
    """As much of a Server as gates look at."""

    name: str = "generic"
    title: str = "some server"
    no_cache: Mapping[str, Any] = field(default_factory=dict)
    stated: Facts = field(default_factory=lambda: Facts("some server"))

    def facts(self, http: Any, model: str | None) -> Facts:
        return self.stated


def exchange(text: str = "12345", **fields: Any) -> Exchange:
    """A whole reply to a prompt of 1000 tokens, read from nothing, unless told otherwise."""
    fields.setdefault("case", "0001-made-up")
    fields.setdefault("ask", Ask(prompt="made up", label=fields.pop("label", "made up")))
    waited = fields.pop("waited_s", 10.1)
    known: dict[str, Any] = {
        "started": 0.0,
        "total_s": waited + 0.1,
        "first_token_s": waited,
        "status": 200,
        "text": text,
        "finish": "stop",
        "prompt_tokens": 1000,
        "reused": 0,
        "scores": (Score(text, -0.1, {text: -0.1}),) if text else (),
    }
    return Exchange(**{**known, **fields})


def failed(failure: Failure = SERVER_ERROR, **fields: Any) -> Exchange:
    return exchange("", failure=failure, first_token_s=None, prompt_tokens=None, reused=None, **fields)


@dataclass
class Scripted:
    """Implements `session.Session`. Tokens are words.

    `bent`: fields of an exchange to replace, by a piece of its ask's label (the longest piece that
    fits). `disk`: the cache outlives its process. `holds`: prompts kept. `calls`: what control was asked.
    """

    options: Options = field(default_factory=lambda: Options(TIERS, model="a", churn_prompts=4, samples=2))
    server: Any = field(default_factory=Named)
    facts: Facts = field(default_factory=lambda: Facts("some server", model="a", block_tokens=1))
    http: Any = None
    wire: Any = None
    wires: Sequence[Any] = ()
    calibration: Calibration = CALIBRATION
    control: Any = None
    baseline: Any = None
    found: Found = field(default_factory=Found)
    bent: dict[str, dict[str, Any]] = field(default_factory=dict)
    disk: bool = True
    counts: bool = True
    offers_cold: bool = True
    holds: int = 100
    sent: list[Exchange] = field(default_factory=list)
    said: list[str] = field(default_factory=list)
    kept: list[tuple[str, list[str]]] = field(default_factory=list)
    requests: int = 0
    loaded: int = 0
    families: int = 0

    @property
    def tiers(self) -> tuple[Tier, ...]:
        return self.options.tiers

    @property
    def small(self) -> Tier:
        return self.tiers[0]

    @property
    def head_tokens(self) -> int:
        return HEAD

    @property
    def allowance(self) -> int:
        return 1

    def say(self, text: str) -> None:
        self.said.append(text)

    def family(self) -> Family:
        self.families += 1
        salt = f"salt{self.families:04d}"
        return Family(salt, {tier.name: self._passage(salt, tier.most - 20) for tier in self.tiers})

    def fresh(self, tier: Tier) -> Passage:
        return self.family().at(tier)

    def passage(self, tokens: int) -> Passage:
        self.families += 1
        return self._passage(f"salt{self.families:04d}", tokens)

    def _passage(self, salt: str, words: int) -> Passage:
        value = f"{10000 + self.families}"
        head = f"{salt} begins EARLY={value} "
        text = head + " ".join(f"w{number}" for number in range(words))
        return Passage(text, (Marker("EARLY", value, head.index(value)),), None)

    def first_sight(self, tier: Tier) -> tuple[Family, Exchange]:
        family = self.family()
        return family, self.send(self.ask(family.at(tier), label=f"{tier.name}, first sight"), tier=tier)

    def ask(self, passage: Passage, *, marker: str | None = None, **changes: Any) -> Ask:
        return Ask(messages=(Message("user", f"{passage.text} EARLY="),), logprobs=3, **changes)

    def converse(self, messages: Sequence[Message], **changes: Any) -> Ask:
        return Ask(messages=tuple(messages), **changes)

    def heard(self, exchange: Exchange, name: str) -> str | None:
        return exchange.answer or None

    def send(
        self,
        ask: Ask,
        *,
        tier: Tier | None = None,
        cancel_after_s: float | None = None,
        wire: Any = None,
        base_url: str | None = None,
    ) -> Exchange:
        off = base_url is not None
        done = self._answer(ask, cached=not off)
        if cancel_after_s is not None:
            gone = Failure(FailureKind.CANCELLED, "closed by the harness")
            done = replace(done, failure=gone, text="", scores=())
        return self._keep(done)

    def send_together(self, asks: Sequence[Ask], *, tier: Tier | None = None) -> list[Exchange]:
        return [self.send(ask, tier=tier) for ask in asks]

    def convert(self, ask: Ask, wire: Any) -> Ask:
        return ask

    def cold(self, ask: Ask, *, tier: Tier | None = None) -> Exchange | None:
        if not self.offers_cold:
            return None
        done = self._keep(self._answer(replace(ask, label=f"{ask.label}, cache off"), cached=False))
        return done if done.ok else None

    def counters(self) -> Counters | None:
        return Counters(requests=self.requests, ssd_loaded_entries=self.loaded) if self.counts else None

    def divergence(self, before: Ask, after: Ask) -> Reach:
        shared = _shared(before.text.split(), after.text.split())
        return Reach(shared, shared)

    def same(
        self, cold: Exchange, warm: Exchange, passage: Passage | None = None, marker: str | None = None
    ) -> Sameness:
        right = None
        if passage is not None and self.facts_right(cold, passage, marker):
            right = self.facts_right(warm, passage, marker)
        return judge.same(cold, warm, self.calibration.floor, right)

    def facts_right(self, exchange: Exchange, passage: Passage, marker: str | None = None) -> bool | None:
        if self.calibration.question is None:
            return None
        return self.heard(exchange, "EARLY") == passage.value("EARLY")

    def new_process(self) -> None:
        """Starts again; what is on disk stays."""
        self.requests = self.loaded = 0
        if not self.disk:
            self.kept.clear()

    def _answer(self, ask: Ask, *, cached: bool) -> Exchange:
        tokens, owner = ask.text.split(), f"{ask.model or 'a'} {sorted(ask.options.items())}"
        reused = 0
        if cached:
            known = [_shared(tokens, words) for name, words in self.kept if name == owner]
            reused = min(max(known, default=0), len(tokens) - 1)
            self.kept = [*self.kept, (owner, tokens)][-self.holds :]
        self.requests += 1
        self.loaded += 1 if reused > HEAD else 0
        value = ask.text.partition("EARLY=")[2][:5]
        read = len(tokens) - reused
        counters = Counters(
            requests=1,
            read_tokens=read,
            reused_tokens=reused,
            ssd_loaded_entries=1 if reused > HEAD else 0,
            drafted=None,
        )
        return exchange(
            value,
            ask=ask,
            waited_s=0.1 + 0.01 * read,
            prompt_tokens=len(tokens),
            reused=reused,
            counters=counters if self.counts else None,
        )

    def _keep(self, done: Exchange) -> Exchange:
        fits = sorted((piece for piece in self.bent if piece in done.ask.label), key=len)
        done = replace(done, case=f"{len(self.sent) + 1:04d}", **(self.bent[fits[-1]] if fits else {}))
        self.sent.append(done)
        return done


@dataclass
class Process:
    """Implements `session.Control` over a scripted session. `problem`: why it does not come back."""

    session: Scripted
    spawned: bool = True
    can_restart: bool = True
    can_kill: bool = True
    problem: str | None = None
    ends: list[str] = field(default_factory=list)

    def died(self) -> str | None:
        return None

    def restart(self) -> str | None:
        return self._end("restart")

    def kill(self) -> str | None:
        return self._end("kill")

    def _end(self, how: str) -> str | None:
        self.ends.append(how)
        if self.problem is None:
            self.session.new_process()
        return self.problem


@dataclass
class CacheOff:
    """Implements `session.Baseline`."""

    url: str = "http://127.0.0.1:1"
    spawned: bool = True
    problem: str | None = None
    started: int = 0
    ended: int = 0

    def fresh(self) -> str | None:
        self.started += 1
        return self.problem

    def end(self) -> str | None:
        self.ended += 1
        return None


def _shared(one: Sequence[str], other: Sequence[str]) -> int:
    shared = 0
    for a, b in zip(one, other, strict=False):
        if a != b:
            break
        shared += 1
    return shared
