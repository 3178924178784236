"""Gate: model A, then B, then A again. B starts at zero, and each comes back from its own state."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from headstart.accept.exchange import Exchange
from headstart.accept.fixtures import Passage, Tier
from headstart.accept.gates import Need
from headstart.accept.gates.evidence import (
    Kept,
    Reuse,
    broken,
    by_facts,
    figures_of,
    kept,
    of_prompt,
    reuse_of,
    seconds,
)
from headstart.accept.judge import Answer, Sameness, Warmth
from headstart.accept.servers import Facts
from headstart.accept.session import Options, Session
from headstart.accept.verdict import Outcome, Verdict

STARTS, A_BACK, B_BACK = "B starts", "A again", "B again"


@dataclass(frozen=True)
class First:
    """First sight of a prompt by B that A has just read. `answer`: beside B's cold answer, where one
    can be had. `as_a`: beside A's answer. `other`: whether the weights are other ones, by their
    digests (None: no digests)."""

    tier: Tier
    model: str
    exchange: Exchange
    reuse: Reuse
    answer: Sameness
    as_a: Answer
    other: bool | None


@dataclass(frozen=True)
class Comeback:
    """A prompt that comes back to a model after the other one was used. `was_warm`: how much came back
    before the switch, None where that was not tried."""

    tier: Tier
    part: str
    model: str
    before: Exchange
    after: Exchange
    reuse: Reuse
    answer: Sameness
    was_warm: Kept | None


@dataclass(frozen=True)
class ModelSwitch:
    name: str = "model_switch"
    title: str = "model switch"
    shows: str = "Another model never starts from this one's state, and both find their own again."
    needs: frozenset[Need] = frozenset({Need.MODELS})

    def run(self, session: Session) -> list[Verdict]:
        other = second_model(session.options, session.facts)
        own = session.options.model or session.facts.model
        if other is None:
            reason = "no second model: give --other-model"
            return [Verdict(self.name, Outcome.UNSUPPORTED, reason)]
        refused = refuse_pair(self.name, own, other, session.facts.digests)
        if refused:
            return [refused]
        if not session.tiers:
            return [Verdict(self.name, Outcome.INCONCLUSIVE, "no tier fits into the server's context")]
        return self._switch(session, session.tiers[0], own or "the first model", other)

    def _switch(self, session: Session, tier: Tier, own: str, other: str) -> list[Verdict]:
        passage = session.fresh(tier)
        a_first = self._send(session, tier, passage, None, "A")
        a_warm = self._send(session, tier, passage, None, "A again")
        failed = broken(self.name, (a_first, a_warm), tier)
        if failed:
            return [failed]
        session.say(f"switching to {other}")
        b_first = self._send(session, tier, passage, other, "B")
        failed = broken(self.name, [b_first], tier, STARTS)
        if failed:
            return [failed]
        session.say(f"switching back to {own}")
        a_back = self._send(session, tier, passage, None, "A after B")
        b_back = self._send(session, tier, passage, other, "B after A")
        first = self._first(session, tier, passage, other, exchange=b_first, a_first=a_first)
        was_warm = self._kept(session, a_warm, tier)
        comebacks = (
            self._comeback(
                session,
                tier,
                passage,
                part=A_BACK,
                model=own,
                before=a_first,
                after=a_back,
                was_warm=was_warm,
            ),
            self._comeback(
                session,
                tier,
                passage,
                part=B_BACK,
                model=other,
                before=b_first,
                after=b_back,
                was_warm=None,
            ),
        )
        head, allowance = session.head_tokens, session.allowance
        return [
            starts_at_zero(self.name, first, head),
            *(comes_back(self.name, one, allowance, head) for one in comebacks),
        ]

    def _send(
        self, session: Session, tier: Tier, passage: Passage, model: str | None, label: str
    ) -> Exchange:
        return session.send(session.ask(passage, model=model, label=f"{tier.name}, {label}"), tier=tier)

    def _kept(self, session: Session, exchange: Exchange, tier: Tier) -> Kept:
        reuse = reuse_of(exchange, session.calibration, tier.least)
        return kept(reuse, None, session.allowance, session.head_tokens)

    def _first(
        self,
        session: Session,
        tier: Tier,
        passage: Passage,
        other: str,
        *,
        exchange: Exchange,
        a_first: Exchange,
    ) -> First:
        own = session.options.model or session.facts.model
        cold = session.cold(session.ask(passage, model=other, label=f"{tier.name}, B"), tier=tier)
        answer = by_facts(session.facts_right(exchange, passage))
        if cold is not None:
            answer = session.same(cold, exchange, passage)
        return First(
            tier,
            other,
            exchange,
            reuse_of(exchange, session.calibration, tier.least),
            answer,
            session.same(a_first, exchange).answer,
            other_weights(own, other, session.facts.digests),
        )

    def _comeback(
        self,
        session: Session,
        tier: Tier,
        passage: Passage,
        *,
        part: str,
        model: str,
        before: Exchange,
        after: Exchange,
        was_warm: Kept | None,
    ) -> Comeback:
        answer = session.same(before, after, passage)
        reuse = reuse_of(after, session.calibration, tier.least)
        return Comeback(tier, part, model, before, after, reuse, answer, was_warm)


def second_model(options: Options, facts: Facts) -> str | None:
    """The model to switch to: the one asked for, else the first other one the server lists."""
    own = options.model or facts.model
    if options.other_model is not None:
        return options.other_model
    return next((name for name in facts.models if name != own), None)


def other_weights(own: str | None, other: str, digests: Mapping[str, str]) -> bool | None:
    """Whether two names stand for other weights; None where the server gives no digests of both."""
    first, second = digests.get(own or ""), digests.get(other)
    return None if first is None or second is None else first != second


def refuse_pair(gate: str, own: str | None, other: str, digests: Mapping[str, str]) -> Verdict | None:
    """A verdict where the two names are one model, which shows nothing."""
    if own == other:
        return Verdict(gate, Outcome.UNSUPPORTED, f"{other} is the model of this run: give another one")
    if other_weights(own, other, digests) is False:
        digest = digests[other][:12]
        reason = f"{own} and {other} are one model (weights {digest}): give another with --other-model"
        return Verdict(gate, Outcome.UNSUPPORTED, reason, figures={"digest": digests[other]})
    return None


def starts_at_zero(gate: str, first: First, head: int) -> Verdict:
    """The first sight of a prompt by B may reuse nothing but the template's head."""
    outcome, reason = _starts(first, head)
    return Verdict(
        gate,
        outcome,
        reason,
        tier=first.tier.name,
        part=STARTS,
        figures={**figures_of(first.reuse), "score_difference": first.answer.difference},
        cases=(first.exchange.case,),
    )


def _starts(first: First, head: int) -> tuple[Outcome, str]:
    told = f"{first.model} on a prompt that only the other model had read: {of_prompt(first.reuse)}"
    tokens = first.reuse.tokens
    if tokens is not None and tokens > head:
        if first.other is None and first.as_a is not Answer.DIFFERENT:
            return Outcome.INCONCLUSIVE, f"{told}; it answers like the other, so both names may be one model"
        return Outcome.FAIL, told
    if first.answer.answer is Answer.DIFFERENT:
        return Outcome.FAIL, f"{told}, and not the answer it gives cold: {first.answer.detail}"
    if tokens is not None:
        return Outcome.PASS, told
    if first.answer.answer is Answer.SAME and first.answer.difference is not None:
        return Outcome.PASS, f"{told}, and the answer it gives cold: {first.answer.detail}"
    return Outcome.INCONCLUSIVE, f"{told}, and loading a model hides the time that reading takes"


def comes_back(gate: str, one: Comeback, allowance: int, head: int) -> Verdict:
    """Back at a model, its own state is due, and its own answer."""
    failed = broken(gate, (one.before, one.after), one.tier, one.part)
    if failed:
        return failed
    outcome, reason = _comes_back(one, allowance, head)
    return Verdict(
        gate,
        outcome,
        reason,
        tier=one.tier.name,
        part=one.part,
        figures={**figures_of(one.reuse, one.before), "score_difference": one.answer.difference},
        cases=(one.before.case, one.after.case),
    )


def _comes_back(one: Comeback, allowance: int, head: int) -> tuple[Outcome, str]:
    told = f"back at {one.model}: {of_prompt(one.reuse)}"
    if one.answer.answer is Answer.DIFFERENT:
        return Outcome.FAIL, f"{told}, and answers otherwise: {one.answer.detail}"
    state = kept(one.reuse, None, allowance, head)
    if one.reuse.tokens is None and one.reuse.clock is not Warmth.WARM:
        return Outcome.INCONCLUSIVE, f"{told}, and loading a model hides the time that reading takes"
    if state is not Kept.ALL:
        if one.was_warm in (Kept.NONE, Kept.UNKNOWN):
            return Outcome.INCONCLUSIVE, f"{told}; before the switch it was not reused either"
        took = f"first token after {seconds(one.reuse.waited_s)}"
        return Outcome.FAIL, f"{told}: its state was lost to the switch, {took}"
    if one.answer.answer is Answer.UNDECIDED:
        return Outcome.INCONCLUSIVE, f"{told}; the answer cannot be compared: {one.answer.detail}"
    return Outcome.PASS, f"{told}, first token after {seconds(one.reuse.waited_s)}; {one.answer.detail}"


GATE = ModelSwitch()
