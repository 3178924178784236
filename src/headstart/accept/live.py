"""The session gates work with: one server, reached over HTTP."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

from headstart.accept import counting, judge, questions
from headstart.accept.artifacts import CaseRecord, case_entry
from headstart.accept.counting import Ratio
from headstart.accept.endpoint import Endpoint
from headstart.accept.exchange import Ask, Counters, Exchange, FailureKind, Message
from headstart.accept.fixtures import Family, Passage, QuestionKind, Texts, Tier
from headstart.accept.judge import Calibration, Reach, Sameness, Warmth
from headstart.accept.report.results import CaseEntry
from headstart.accept.servers import Facts, Http, Server
from headstart.accept.session import Baseline, Control, Found, Options
from headstart.accept.wires import Wire

LARGEST_UNSTATED_STEP = 512
"""A server that states no block size is granted the granularity found, up to this."""
SALT_TOKENS = 24


@dataclass
class Target:
    """What a session is opened on."""

    endpoint: Endpoint
    http: Http
    server: Server
    facts: Facts
    wire: Wire
    wires: Sequence[Wire]
    logprobs: int


class LiveSession:
    """Implements `session.Session`. `keep`: gets every case; `progress`: lines for the person."""

    def __init__(
        self,
        target: Target,
        options: Options,
        texts: Texts,
        *,
        control: Control | None = None,
        baseline: Baseline | None = None,
        keep: Callable[[CaseRecord], None] = lambda record: None,
        progress: Callable[[str], None] = lambda text: None,
    ) -> None:
        self.options = options
        self.server, self.facts, self.http = target.server, target.facts, target.http
        self.wire, self.wires = target.wire, target.wires
        self.control = control
        self.baseline = baseline
        self.found = Found()
        self.calibration = UNMEASURED
        self.ratio = Ratio()
        self.cases: list[CaseEntry] = []
        self.texts = texts
        self.gate = "calibration"
        self.begun_s = time.perf_counter()
        self._target = target
        self._keep = keep
        self._progress = progress
        self._lock = threading.Lock()
        self._number = 0
        self._counted: dict[str, int] = {}
        self._lengths: dict[str, int] = {}
        self._references: dict[str, Exchange] = {}
        self._held: set[str] = set()

    @property
    def model(self) -> str | None:
        return self.options.model or self.facts.model

    @property
    def tiers(self) -> tuple[Tier, ...]:
        most = self.facts.context_tokens
        return tuple(tier for tier in self.options.tiers if most is None or tier.tokens <= most)

    @property
    def small(self) -> Tier:
        return judge.small_size(self.tiers[0], self.calibration, self.allowance)

    def say(self, text: str) -> None:
        self._progress(text)

    # -- texts --------------------------------------------------------------------------------

    def family(self) -> Family:
        family = self._family()
        for tier in self.tiers:
            passage = family.at(tier)
            counted = self.server.tokens(self.http, self.ask(passage), self.wire.name, self.model)
            if counted is None or tier.least <= len(counted) <= tier.most:
                continue
            self._refit(tier, passage, len(counted))
            family = self._family()
        return family

    def _family_of(self, tier: Tier) -> Family:
        if tier in self.tiers:
            return self.family()
        return self.texts.family([(tier, self._length(tier))], self.ratio.chars_per_token)

    def fresh(self, tier: Tier) -> Passage:
        return self._family_of(tier).at(tier)

    def _family(self) -> Family:
        sizes = [(tier, self._lengths.get(tier.name) or self._length(tier)) for tier in self.options.tiers]
        return self.texts.family(sizes, self.ratio.chars_per_token)

    def _length(self, tier: Tier) -> int:
        return self.ratio.length(_aim(tier))

    def refit(self, tier: Tier, passage: Passage, done: Exchange) -> None:
        if done.prompt_tokens is not None:
            self._refit(tier, passage, done.prompt_tokens)

    def _refit(self, tier: Tier, passage: Passage, counted: int) -> None:
        off = int((_aim(tier) - counted) * self.ratio.chars_per_token)
        self._lengths[tier.name] = max(1, len(passage.text) + off)

    def passage(self, tokens: int) -> Passage:
        return self.texts.passage(self.ratio.length(tokens))

    def ask(self, passage: Passage, *, marker: str | None = None, **changes: Any) -> Ask:
        kind = changes.pop("question", None) or self.calibration.question or QuestionKind.COPY
        text = passage.text + questions.question(kind, passage, marker, chat=self.wire.chat)
        changes.setdefault("max_tokens", questions.MOST_TOKENS[kind])
        return self.converse([Message("user", text)], _plain=text, **changes)

    def converse(self, messages: Sequence[Message], *, _plain: str | None = None, **changes: Any) -> Ask:
        changes.setdefault("logprobs", self._target.logprobs)
        if not self.wire.chat:
            return Ask(prompt=questions.as_text(messages) if _plain is None else _plain, **changes)
        options = {**self._thinking_off(self.wire), **changes.pop("options", {})}
        return Ask(messages=tuple(messages), options=options, **changes)

    def _thinking_off(self, wire: Wire) -> dict[str, Any]:
        return dict(self.server.thinking_off) if wire.name == "openai_chat" else {}

    def heard(self, exchange: Exchange, name: str) -> str | None:
        return questions.heard(exchange, name)

    def first_sight(self, tier: Tier) -> tuple[Family, Exchange]:
        if not self.found.cold.get(tier.name):
            family = self._family_of(tier)
            done = self.send(self.ask(family.at(tier), label=f"{tier.name}, first sight"), tier=tier)
            self.found.families.setdefault(tier.name, []).append(family)
            self.found.cold.setdefault(tier.name, []).append(done)
        family, done = self.found.families[tier.name][-1], self.found.cold[tier.name][-1]
        if done.ok and done.ask.text not in self._held:
            self.send(replace(done.ask, label=f"{tier.name}, read again"), tier=tier)
        return family, done

    @property
    def head_tokens(self) -> int:
        return self.calibration.overhead_tokens + SALT_TOKENS

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
        before = self.counters() if base_url is None else None
        done = self._send(ask, wire or self.wire, cancel_after_s, base_url)
        after = self.counters() if base_url is None else None
        if base_url is None and done.ok:
            self._held.add(ask.text)
        if before is not None and after is not None:
            done = replace(done, counters=after.since(before))
        self._record(done, tier, wire or self.wire, before, after)
        return done

    def send_together(self, asks: Sequence[Ask], *, tier: Tier | None = None) -> list[Exchange]:
        with ThreadPoolExecutor(max(1, len(asks))) as pool:
            done = list(pool.map(lambda ask: self._send(ask, self.wire, None, None), asks))
        for exchange in done:
            self._record(exchange, tier, self.wire, None, None)
        return done

    def _send(self, ask: Ask, wire: Wire, cancel_after_s: float | None, root: str | None) -> Exchange:
        with self._lock:
            self._number += 1
            words = re.sub(r"[^a-z0-9]+", "-", f"{self.gate} {ask.label}".lower()).strip("-")[:60]
            case = f"{self._number:04d}-{words}"
        return self._target.endpoint.send(
            ask, wire, model=self.model, case=case, cancel_after_s=cancel_after_s, root=root
        )

    def _record(
        self,
        done: Exchange,
        tier: Tier | None,
        wire: Wire,
        before: Counters | None,
        after: Counters | None,
    ) -> None:
        if done.prompt_tokens is not None:
            self._counted[done.ask.text] = done.prompt_tokens
        at_s = time.perf_counter() - self.begun_s - done.total_s
        record = CaseRecord(done, self.gate, tier.name if tier else None, wire.name, at_s, before, after)
        self.cases.append(case_entry(record))
        self._keep(record)
        failed = done.failure is not None and done.failure.kind is not FailureKind.CANCELLED
        if failed or done.total_s > 2:
            self.say(f"{done.ask.label or 'request'}: {_summary(done)}")

    def convert(self, ask: Ask, wire: Wire) -> Ask:
        options = {key: value for key, value in ask.options.items() if key not in self.server.thinking_off}
        if not wire.chat:
            prompt = ask.prompt if ask.prompt is not None else questions.as_text(ask.messages)
            return replace(ask, prompt=prompt, messages=(), options=options)
        messages = ask.messages or (Message("user", ask.prompt or ""),)
        options = {**self._thinking_off(wire), **options}
        return replace(ask, prompt=None, messages=messages, options=options)

    def cold(self, ask: Ask, *, tier: Tier | None = None) -> Exchange | None:
        key = repr(replace(ask, label=""))
        known = self._references.get(key) or self.uncached(ask, tier=tier)
        if known is not None:
            self._references[key] = known
        return known

    def uncached(self, ask: Ask, *, tier: Tier | None = None) -> Exchange | None:
        """`cold`, read anew each time."""
        label = f"{ask.label}, cache off".lstrip(", ")
        if self.server.no_cache:
            changed = replace(ask, options={**ask.options, **self.server.no_cache}, label=label)
        elif self.server.clear(self.http, self.model):
            self._held.clear()
            changed = replace(ask, label=label)
        else:
            return None
        done = self.send(changed, tier=tier)
        return done if done.ok and not self.seems_warm(done) else None

    def seems_warm(self, done: Exchange) -> bool:
        """Whether anything says that a reply reused more than every prompt shares."""
        if done.reused is not None and done.reused > self.head_tokens:
            return True
        clock = judge.warmth(done.waited_s, done.prompt_tokens or 0, self.calibration)
        return ask_streams(done) and clock is Warmth.WARM

    def counters(self) -> Counters | None:
        return self.server.counters(self.http, self.model)

    # -- judging ------------------------------------------------------------------------------

    def divergence(self, before: Ask, after: Ask) -> Reach:
        one, other = (
            self.server.tokens(self.http, ask, self.wire.name, self.model) for ask in (before, after)
        )
        if one is not None and other is not None:
            shared = counting.shared_tokens(one, other)
            return Reach(shared, shared)
        if before.text == after.text and before.text in self._counted:
            whole = self._counted[before.text]
            return Reach(whole, whole)
        return counting.estimated_reach(counting.shared_chars(before.text, after.text), self.ratio)

    @property
    def allowance(self) -> int:
        if self.facts.block_tokens is not None:
            return max(1, self.facts.block_tokens)
        found = self.found.step_tokens
        return LARGEST_UNSTATED_STEP if found is None else min(found, LARGEST_UNSTATED_STEP)

    def same(
        self, cold: Exchange, warm: Exchange, passage: Passage | None = None, marker: str | None = None
    ) -> Sameness:
        right = None
        if passage is not None and self.facts_right(cold, passage, marker):
            right = self.facts_right(warm, passage, marker)
        return judge.same(cold, warm, self.calibration.floor, right, self.options.tolerance)

    def facts_right(self, exchange: Exchange, passage: Passage, marker: str | None = None) -> bool | None:
        if self.calibration.question is None or not passage.markers:
            return None
        name = marker or passage.markers[-1].name
        return self.heard(exchange, name) == passage.value(name)


def _aim(tier: Tier) -> int:
    return (tier.least + 2 * tier.most) // 3


def ask_streams(done: Exchange) -> bool:
    """Whether the first token's time is known, so that the clock can judge."""
    return done.first_token_s is not None


def _summary(done: Exchange) -> str:
    if done.failure is not None:
        return f"{done.failure.kind}: {done.failure.detail}"
    reused = "unknown" if done.reused is None else done.reused
    return f"{done.waited_s:.2f} s to the first token, {done.prompt_tokens} tokens, {reused} reused"


UNMEASURED = Calibration(
    base_s=0.0,
    read_s_per_token=0.0,
    warm_s=0.0,
    decode_s_per_token=0.0,
    chars_per_token=counting.DEFAULT_CHARS_PER_TOKEN,
    overhead_tokens=counting.DEFAULT_OVERHEAD_TOKENS,
    question=None,
    floor=judge.Floor(None, False),
)
