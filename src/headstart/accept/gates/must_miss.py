"""Gate: is nothing reused where nothing may be?

A server whose cache is off misses everything, so every miss counts only beside a hit: the same prompt,
sent again, has to be reused.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from headstart.accept.clock import Doubt, measure_again
from headstart.accept.exchange import Ask, Exchange
from headstart.accept.fixtures import Passage, Tier
from headstart.accept.gates import Need
from headstart.accept.gates.evidence import (
    Kept,
    Reuse,
    broken,
    by_facts,
    figures_of,
    kept,
    names_other,
    of_prompt,
    quoted,
    reuse_of,
    seconds,
    with_options,
)
from headstart.accept.judge import Answer, Reach, Sameness, Warmth
from headstart.accept.servers import Facts
from headstart.accept.session import Session
from headstart.accept.verdict import Outcome, Verdict

_BY_MODEL_NAME = ("vllm", "sglang")
_SALTED = ("vllm", "sglang")
FIRST_WORD = "first word"


@dataclass(frozen=True)
class Change:
    """What is other about a prompt. `part`: the question in two words. `words`: for the reason. With a
    model or options these make it a stranger, not its text."""

    part: str
    words: str
    model: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def in_text(self) -> bool:
        return self.model is None and not self.options


@dataclass(frozen=True)
class Stranger:
    """A prompt that may reuse no more than it shares with what was sent before.

    `shared`: leading tokens it may reuse. `foreign`: the reply gives a value of another text. `hit`:
    how much of the same prompt came back when it was sent twice. `read_s`: first token of a prompt as
    long, read from nothing. `doubt`: what came of measuring again, where `suspected`.
    """

    tier: Tier
    change: Change
    exchange: Exchange
    reuse: Reuse
    shared: Reach
    foreign: bool
    answer: Sameness
    hit: Kept
    read_s: float
    doubt: Doubt | None = None


@dataclass(frozen=True)
class Known:
    """A prompt that was sent twice."""

    passage: Passage
    ask: Ask
    first: Exchange
    again: Exchange
    hit: Kept


@dataclass(frozen=True)
class Sent:
    """A stranger on its way to be judged."""

    known: Known
    passage: Passage
    change: Change
    ask: Ask
    exchange: Exchange
    shared: Reach


@dataclass(frozen=True)
class MustMiss:
    name: str = "must_miss"
    title: str = "must miss"
    shows: str = "Nothing is reused for another text, first word, model, adapter or cache salt."
    needs: frozenset[Need] = frozenset()

    def run(self, session: Session) -> list[Verdict]:
        if not session.tiers:
            return [Verdict(self.name, Outcome.INCONCLUSIVE, "no tier fits into the server's context")]
        tier = session.small
        known = self._known(session, tier)
        failed = broken(self.name, (known.first, known.again), tier)
        if failed:
            return [failed]
        other, first_word = session.fresh(tier), known.passage.changed_at(0)
        sent = [
            self._send(session, tier, known, other, Change("other text", "another text")),
            self._send(session, tier, known, first_word, Change(FIRST_WORD, "another first word")),
        ]
        changes = adapter_changes(session.server.name, session.facts)[:1]
        sent += [self._send(session, tier, known, known.passage, change) for change in changes]
        salted = self._salted(session, tier)
        if isinstance(salted, Sent):
            sent.append(salted)
        verdicts = [missed(self.name, self._stranger(session, tier, one)) for one in sent]
        if isinstance(salted, Verdict):
            verdicts.append(salted)
        if len(verdicts) == 2:
            reason = "the server names no adapter or cache salt that a request can choose"
            verdicts.append(Verdict(self.name, Outcome.UNSUPPORTED, reason, tier.name, "adapter or option"))
        return verdicts

    def _known(self, session: Session, tier: Tier) -> Known:
        family, first = session.first_sight(tier)
        passage = family.at(tier)
        known = self._again(session, tier, passage, first, "known")
        if known.hit is not Kept.NONE:
            return known
        # Gates before this one may have pushed it out of a small cache. Now it was read anew.
        return self._again(session, tier, passage, known.again, "known once more")

    def _twice(self, session: Session, tier: Tier, label: str, options: Mapping[str, Any]) -> Known:
        passage = session.fresh(tier)
        ask = with_options(session.ask(passage, label=f"{tier.name}, {label}"), options)
        return self._again(session, tier, passage, session.send(ask, tier=tier), label)

    def _again(self, session: Session, tier: Tier, passage: Passage, first: Exchange, label: str) -> Known:
        again = session.send(replace(first.ask, label=f"{tier.name}, {label}, again"), tier=tier)
        reuse = reuse_of(again, session.calibration, tier.least)
        hit = kept(reuse, None, session.allowance, session.head_tokens)
        return Known(passage, first.ask, first, again, hit)

    def _send(self, session: Session, tier: Tier, known: Known, passage: Passage, change: Change) -> Sent:
        ask = session.ask(passage, label=f"{tier.name}, {change.words}", model=change.model)
        ask = with_options(ask, change.options)
        shared = session.divergence(known.ask, ask) if change.in_text else Reach(0, 0)
        # Salts begin with digits: some text sent before may share a few of them by chance.
        shared = Reach(shared.low, max(shared.high, session.head_tokens)) if change.in_text else shared
        return Sent(known, passage, change, ask, session.send(ask, tier=tier), shared)

    def _stranger(self, session: Session, tier: Tier, sent: Sent) -> Stranger:
        """Sets the cold answer beside it. After everything is sent: cold may mean an emptied cache."""
        exchange, passage = sent.exchange, sent.passage
        cold = session.cold(sent.ask, tier=tier) if exchange.ok else None
        answer = by_facts(session.facts_right(exchange, passage))
        if cold is not None:
            answer = session.same(cold, exchange, passage)
        foreign = any(
            names_other(session.heard(exchange, marker.name), passage.value(marker.name), [marker.value])
            for marker in sent.known.passage.markers
        )
        reuse = reuse_of(exchange, session.calibration, tier.least)
        known = sent.known
        stranger = Stranger(
            tier,
            sent.change,
            exchange,
            reuse,
            sent.shared,
            foreign,
            answer,
            known.hit,
            known.first.waited_s,
        )
        if not suspected(stranger) or _wrong(stranger) or sent.change.part != FIRST_WORD:
            return stranger
        # Only here is there another text beside it that is known to be read: the one before the change.
        return replace(
            stranger, doubt=measure_again(session, Warmth.WARM, lambda: self._timed(session, tier))
        )

    def _timed(self, session: Session, tier: Tier) -> tuple[Exchange, Exchange]:
        text = session.fresh(tier)
        cold, other = [
            session.send(session.ask(one, label=f"{tier.name}, timed"), tier=tier)
            for one in (text, text.changed_at(0))
        ]
        return cold, other

    def _salted(self, session: Session, tier: Tier) -> Sent | Verdict | None:
        part, name = "cache salt", "cache_salt"
        if session.server.name not in _SALTED:
            return None
        known = self._twice(session, tier, "with a cache salt", {name: "accept-one"})
        failed = broken(self.name, (known.first, known.again), tier, part)
        if failed:
            return failed
        change = Change(part, "another cache salt", None, {name: "accept-two"})
        return self._send(session, tier, known, known.passage, change)


def adapter_changes(server: str, facts: Facts) -> list[Change]:
    """How a request chooses another adapter than the default."""
    part = "other adapter"
    if server == "llama_server":
        return [
            Change(part, f"adapter {name} at half its weight", None, {"lora": [{"id": number, "scale": 0.5}]})
            for number, name in enumerate(facts.adapters)
        ]
    if server in _BY_MODEL_NAME:
        return [Change(part, f"adapter {name}", name) for name in facts.adapters]
    return []


def missed(gate: str, one: Stranger) -> Verdict:
    """PASS needs a reason to believe the miss: the clock, the counters or the answer."""
    failed = broken(gate, [one.exchange], one.tier, one.change.part)
    if failed:
        return failed
    outcome, reason = _judge(one)
    return Verdict(
        gate,
        outcome,
        reason,
        tier=one.tier.name,
        part=one.change.part,
        figures={
            **figures_of(one.reuse),
            "shared_tokens": one.shared.high,
            "beyond_tokens": None if one.reuse.tokens is None else max(0, one.reuse.tokens - one.shared.high),
            "score_difference": one.answer.difference,
        },
        cases=(one.exchange.case,),
    )


def _judge(one: Stranger) -> tuple[Outcome, str]:
    wrong = _wrong(one)
    if wrong:
        return Outcome.FAIL, wrong
    told = f"{one.change.words}: {of_prompt(one.reuse)}, {_shares(one)}"
    if one.hit is Kept.NONE:
        return Outcome.INCONCLUSIVE, f"{told}; but the same prompt again is not reused either"
    if one.hit is Kept.UNKNOWN:
        return Outcome.INCONCLUSIVE, f"{told}; nor can it be told whether the same prompt again is reused"
    if suspected(one):
        again = f"; {one.doubt.words}" if one.doubt is not None else ""
        return Outcome.INCONCLUSIVE, f"{told}; but {_took(one)}: the clock disagrees{again}"
    believed = _believed(one)
    if not believed:
        return Outcome.INCONCLUSIVE, f"{told}; nothing else confirms it: {one.answer.detail}"
    return Outcome.PASS, f"{told}; {believed}"


def _wrong(one: Stranger) -> str | None:
    reuse, most = one.reuse, one.shared.high
    if reuse.stated is not None and reuse.stated > most:
        return f"{one.change.words}: {of_prompt(reuse)}, though {_shares(one)}"
    slack = max(2, (reuse.prompt or 0) // 100)
    if reuse.counted is not None and reuse.counted > most + slack:
        return (
            f"{one.change.words}: its counters rose by {reuse.counted} reused tokens, though {_shares(one)}"
        )
    if one.foreign:
        return (
            f"{one.change.words}: the reply gives a value of the other text ({quoted(one.exchange.answer)})"
        )
    if one.answer.answer is Answer.DIFFERENT:
        return (
            f"{one.change.words}: {of_prompt(reuse)}, and not the answer it gives cold: {one.answer.detail}"
        )
    if suspected(one) and one.doubt is not None and one.doubt.agreed:
        return f"{one.change.words}: {of_prompt(reuse)}, but {_took(one)}; {one.doubt.words}"
    return None


def suspected(one: Stranger) -> bool:
    """Whether the first token came too early for a prompt that had to be read."""
    reuse = one.reuse
    quick = reuse.clock is Warmth.WARM and 2 * reuse.waited_s < one.read_s and not reuse.confirmed
    return quick and 4 * one.shared.high < (reuse.prompt or 0)


def _took(one: Stranger) -> str:
    return f"first token after {seconds(one.reuse.waited_s)} where reading took {seconds(one.read_s)}"


def _shares(one: Stranger) -> str:
    most = "" if one.shared.exact else "at most "
    return f"it shares {most}{one.shared.high} with what was sent before"


def _believed(one: Stranger) -> str:
    because: Iterable[str] = (
        f"first token after {seconds(one.reuse.waited_s)}, as reading takes"
        if one.reuse.clock is Warmth.COLD
        else "",
        "its counters agree" if one.reuse.confirmed else "",
        one.answer.detail if one.answer.answer is Answer.SAME else "",
    )
    return ", ".join(word for word in because if word)


GATE = MustMiss()
