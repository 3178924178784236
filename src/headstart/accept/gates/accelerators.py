"""Gate: speculative decoding off and on, cold and warm: four answers within the floor, and it really ran."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from headstart.accept.exchange import Ask, Exchange, Message
from headstart.accept.fixtures import Passage, Tier
from headstart.accept.gates import Need
from headstart.accept.gates.evidence import (
    Kept,
    broken,
    kept,
    of_prompt,
    reuse_of,
    with_options,
)
from headstart.accept.judge import Answer, Sameness
from headstart.accept.session import Session
from headstart.accept.verdict import Figure, Outcome, Verdict

REPLY_TOKENS = 64
"""Long enough for drafts."""
PROBE_TOKENS = 256
OFF: Mapping[str, Mapping[str, Any]] = {"llama_server": {"speculative.n_max": 0}}
"""Fields that leave speculation off for one request, by server."""
ON_PART, CROSS_PART, NEXT_PART = "on", "on and off", "next turn"


@dataclass(frozen=True)
class Drafts:
    """Speculative tokens of some replies. None: the server does not count them."""

    drafted: int | None
    accepted: int | None

    @property
    def missing(self) -> str | None:
        """Why they do not show that speculation ran; None where they do."""
        if self.drafted is None or self.accepted is None:
            return "no counts of drafted and accepted tokens show that speculation ran"
        if self.drafted == 0:
            return "it drafted 0 tokens: speculation did not run"
        if self.accepted == 0:
            return f"it drafted {self.drafted} tokens and accepted 0: speculation ran for nothing"
        return None


@dataclass(frozen=True)
class Runs:
    """Replies to set side by side. `on`, `off`: all exchanges of either kind. `pairs`: the comparisons,
    by words for a reason. `warm`: how much came back in those that were repeats."""

    tier: Tier
    on: Sequence[Exchange]
    off: Sequence[Exchange]
    pairs: Sequence[tuple[str, Sameness]]
    warm: Sequence[Kept]


@dataclass(frozen=True)
class Accelerators:
    name: str = "accelerators"
    title: str = "accelerators"
    shows: str = (
        "With speculative decoding, which really ran, answers are the same cold, warm and without it."
    )
    needs: frozenset[Need] = frozenset()

    def run(self, session: Session) -> list[Verdict]:
        if not session.tiers:
            return [Verdict(self.name, Outcome.INCONCLUSIVE, "no tier fits into the server's context")]
        probe = None
        if session.facts.speculative is None:
            ask = session.ask(
                session.passage(PROBE_TOKENS), label="does it draft tokens?", max_tokens=REPLY_TOKENS
            )
            probe = session.send(ask)
        absent = without(self.name, session.facts.speculative, probe)
        if absent:
            return [absent]
        tier = session.small
        passage = session.fresh(tier)
        on = [self._send(session, tier, passage, f"speculation on, {word}", {}) for word in ("cold", "warm")]
        failed = broken(self.name, on, tier, ON_PART)
        if failed:
            return [failed]
        pair = ("warm against cold, speculation on", session.same(on[0], on[1], passage))
        verdicts = [
            judged(self.name, ON_PART, Runs(tier, on, [], [pair], [self._kept(session, on[1], tier)]))
        ]
        verdicts.append(self._cross(session, tier, passage, on, pair))
        verdicts.append(self._next_turn(session, tier, passage, on[1]))
        return verdicts

    def _cross(
        self,
        session: Session,
        tier: Tier,
        passage: Passage,
        on: Sequence[Exchange],
        pair: tuple[str, Sameness],
    ) -> Verdict:
        """Two texts: the first is read with speculation on, the second with it off; both are then asked
        warm the other way too, so that every answer hangs together with every other."""
        off = OFF.get(session.server.name)
        if off is None:
            reason = f"no field of {session.server.title} leaves speculation off for one request"
            return Verdict(self.name, Outcome.UNSUPPORTED, reason, tier.name, CROSS_PART)
        other = session.fresh(tier)
        off_warm = self._send(session, tier, passage, "speculation off, warm", off)
        off_cold = self._send(session, tier, other, "speculation off, cold", off)
        off_again = self._send(session, tier, other, "speculation off, warm again", off)
        on_again = self._send(session, tier, other, "speculation on, warm again", {})
        failed = broken(self.name, (off_warm, off_cold, off_again, on_again), tier, CROSS_PART)
        if failed:
            return failed
        pairs = [
            pair,
            ("off and warm against on and cold", session.same(on[0], off_warm, passage)),
            ("warm against cold, speculation off", session.same(off_cold, off_again, other)),
            ("on and warm against off and cold", session.same(off_cold, on_again, other)),
        ]
        warm = [self._kept(session, one, tier) for one in (on[1], off_warm, off_again, on_again)]
        runs = Runs(tier, [*on, on_again], [off_warm, off_cold, off_again], pairs, warm)
        return judged(self.name, CROSS_PART, runs)

    def _next_turn(self, session: Session, tier: Tier, passage: Passage, reply: Exchange) -> Verdict:
        """Goes on from what was written with drafts: a rejected one must not be in the state."""
        ask = next_turn(session.ask(passage, max_tokens=REPLY_TOKENS), reply.text, f"{tier.name}, next turn")
        warm = session.send(ask, tier=tier)
        failed = broken(self.name, [warm], tier, NEXT_PART)
        if failed:
            return failed
        cold = session.cold(replace(ask, label=f"{ask.label}, cold"), tier=tier)
        if cold is None:
            reason = f"{of_prompt(reuse_of(warm, session.calibration))}; the server gives no answer without "
            reason += "its cache to set beside it"
            return Verdict(self.name, Outcome.INCONCLUSIVE, reason, tier.name, NEXT_PART, cases=(warm.case,))
        answer = session.same(cold, warm)
        pair = ("next turn against the same without the cache", answer)
        runs = Runs(tier, [reply, warm], [], [pair], [self._kept(session, warm, tier, reply.prompt_tokens)])
        return judged(self.name, NEXT_PART, runs)

    def _send(
        self, session: Session, tier: Tier, passage: Passage, label: str, options: Mapping[str, Any]
    ) -> Exchange:
        ask = session.ask(passage, label=f"{tier.name}, {label}", max_tokens=REPLY_TOKENS)
        return session.send(with_options(ask, options), tier=tier)

    def _kept(self, session: Session, exchange: Exchange, tier: Tier, due: int | None = None) -> Kept:
        reuse = reuse_of(exchange, session.calibration, tier.least)
        return kept(reuse, due, session.allowance, session.head_tokens)


def next_turn(ask: Ask, reply: str, label: str) -> Ask:
    """The conversation with the reply and one more request."""
    if ask.prompt is not None:
        return replace(ask, prompt=f"{ask.prompt}{reply}\n\n{ask.prompt.splitlines()[-1]}", label=label)
    added = (Message("assistant", reply), Message("user", "Answer the same question once more."))
    return replace(ask, messages=(*ask.messages, *added), label=label)


def drafts_of(exchanges: Iterable[Exchange]) -> Drafts:
    """By the replies' own counts, else by what the server's counters rose by."""

    def total(name: str) -> int | None:
        known: list[int | float] = []
        for one in exchanges:
            own, counted = getattr(one, name), getattr(one.counters, name, None)
            known += [value for value in (own, counted) if value is not None][:1]
        return round(sum(known)) if known else None

    exchanges = list(exchanges)
    return Drafts(total("drafted"), total("accepted"))


def without(gate: str, stated: str | None, probe: Exchange | None) -> Verdict | None:
    """A verdict where the server has no speculative decoding: it states none and drafts nothing."""
    if stated is not None or probe is None:
        return None
    failed = broken(gate, [probe])
    if failed:
        return failed
    drafted = drafts_of([probe]).drafted
    if drafted:
        return None
    reason = "the server states no speculative decoding"
    reason += " and counts no drafted tokens" if drafted is None else " and drafted 0 tokens"
    return Verdict(gate, Outcome.UNSUPPORTED, reason, figures={"drafted": drafted}, cases=(probe.case,))


def judged(gate: str, part: str, runs: Runs) -> Verdict:
    """Other answers fail; equal ones pass only where speculation ran, and repeats were warm."""
    on, off = drafts_of(runs.on), drafts_of(runs.off)
    outcome, reason = _judge(runs, on, off)
    differences = [one.difference for _, one in runs.pairs if one.difference is not None]
    figures: dict[str, Figure] = {
        "drafted": on.drafted,
        "accepted": on.accepted,
        "score_difference": max(differences, default=None),
    }
    if runs.off:
        figures["drafted_while_off"] = off.drafted
    cases = tuple(one.case for one in (*runs.on, *runs.off))
    return Verdict(gate, outcome, reason, runs.tier.name, part, figures, cases)


def _judge(runs: Runs, on: Drafts, off: Drafts) -> tuple[Outcome, str]:
    for words, one in runs.pairs:
        if one.answer is Answer.DIFFERENT:
            return Outcome.FAIL, f"{words}: {one.detail} (drafted {on.drafted}, accepted {on.accepted})"
    if on.missing:
        return Outcome.INCONCLUSIVE, on.missing
    if off.drafted:
        return (
            Outcome.INCONCLUSIVE,
            f"asked to leave speculation off, the server drafted {off.drafted} tokens",
        )
    for words, one in runs.pairs:
        if one.answer is Answer.UNDECIDED:
            return Outcome.INCONCLUSIVE, f"{words}: {one.detail}"
    if any(state in (Kept.NONE, Kept.UNKNOWN) for state in runs.warm):
        return Outcome.INCONCLUSIVE, "a repeat was not seen to be warm, so nothing was crossed with it"
    ran = f"drafted {on.drafted} tokens, accepted {on.accepted}"
    words = "; ".join(f"{words}: {one.detail}" for words, one in runs.pairs)
    return Outcome.PASS, f"{ran}; {words}"


GATE = Accelerators()
