"""Gate: the same server with its cache off. What does the cache save, and do answers depend on it?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from headstart.accept.clock import far_apart
from headstart.accept.exchange import Exchange
from headstart.accept.fixtures import Passage, Tier
from headstart.accept.gates import Need
from headstart.accept.gates.evidence import Reuse, broken, of_prompt, outcome_of, reuse_of, seconds
from headstart.accept.judge import Answer, Sameness, Timing, Warmth
from headstart.accept.session import Baseline, Session
from headstart.accept.verdict import Figure, Outcome, Verdict

WARM_UP_TOKENS = 256
ANSWERS, SAVES = "answers", "saves"


@dataclass(frozen=True)
class Sides:
    """One prompt with the cache off and on.

    `off`: first sight in a process each (in one where the control is a URL). `repeat`: once more in the
    last of them, which shows whether its cache is off. `cold`, `warm`: with the cache on.
    `answers`: those with the cache on beside the first without, by words for a reason.
    """

    tier: Tier
    off: Sequence[Exchange]
    repeat: Exchange
    repeated: Reuse
    cold: Exchange
    warm: Sequence[Exchange]
    warm_reuse: Reuse
    answers: Sequence[tuple[str, Sameness]]


@dataclass(frozen=True)
class On:
    """What the server judged replied."""

    tier: Tier
    passage: Passage
    cold: Exchange
    warm: Sequence[Exchange]


@dataclass(frozen=True)
class Off:
    """What its control replied. `problem`: why it did not start."""

    samples: Sequence[Exchange]
    repeat: Exchange | None
    problem: str | None = None


@dataclass(frozen=True)
class ControlGate:
    name: str = "control"
    title: str = "cache off"
    shows: str = "Answers are those of the same server with its cache off, and the cache saves time."
    needs: frozenset[Need] = frozenset({Need.CONTROL})

    def run(self, session: Session) -> list[Verdict]:
        baseline = session.baseline
        if baseline is None:
            reason = "no server with its cache off was given: --control-cmd or --control-url"
            return [Verdict(self.name, Outcome.UNSUPPORTED, reason)]
        if not session.tiers:
            return [Verdict(self.name, Outcome.INCONCLUSIVE, "no tier fits into the server's context")]
        on = [self._on(session, tier) for tier in session.tiers]
        try:
            off = [self._off(session, baseline, one) for one in on]
        finally:
            problem = baseline.end()
        verdicts = [
            verdict
            for one, other in zip(on, off, strict=True)
            for verdict in self._judge(session, one, other)
        ]
        if problem is not None:
            reason = f"the server did not come back after its control: {problem}"
            verdicts.append(Verdict(self.name, Outcome.INCONCLUSIVE, reason, part="end"))
        return verdicts

    def _on(self, session: Session, tier: Tier) -> On:
        family, cold = session.first_sight(tier)
        # Other prompts or a new process may have cost the server this text since.
        session.send(replace(cold.ask, label=f"{tier.name}, cache on"), tier=tier)
        warm = [
            session.send(replace(cold.ask, label=f"{tier.name}, cache on, again {number}"), tier=tier)
            for number in range(1, max(1, session.options.samples) + 1)
        ]
        return On(tier, family.at(tier), cold, warm)

    def _off(self, session: Session, baseline: Baseline, on: On) -> Off:
        tier, samples = on.tier, max(1, session.options.samples)
        off: list[Exchange] = []
        for number in range(1, samples + 1):
            session.say(f"{tier.name} with the cache off, {number} of {samples}")
            problem = baseline.fresh()
            if problem is not None:
                return Off(off, None, problem)
            warm_up = session.ask(session.passage(WARM_UP_TOKENS), label="unrelated warm-up, cache off")
            session.send(warm_up, base_url=baseline.url)
            ask = session.ask(on.passage, label=f"{tier.name}, cache off {number}")
            off.append(session.send(ask, tier=tier, base_url=baseline.url))
        ask = session.ask(on.passage, label=f"{tier.name}, cache off, again")
        return Off(off, session.send(ask, tier=tier, base_url=baseline.url))

    def _judge(self, session: Session, on: On, off: Off) -> list[Verdict]:
        tier = on.tier
        if off.problem is not None or off.repeat is None:
            reason = f"the control server did not start: {off.problem}"
            return [Verdict(self.name, Outcome.INCONCLUSIVE, reason, tier.name)]
        failed = broken(self.name, [*off.samples, off.repeat, on.cold, *on.warm], tier)
        if failed:
            return [failed]
        session.found.control.setdefault(tier.name, []).extend(off.samples)
        answers = [
            (words, session.same(off.samples[0], one, on.passage))
            for words, one in (("first sight", on.cold), ("repeat", on.warm[0]))
        ]
        repeated, again = (
            reuse_of(one, session.calibration, tier.least) for one in (off.repeat, on.warm[-1])
        )
        sides = Sides(tier, off.samples, off.repeat, repeated, on.cold, on.warm, again, answers)
        return [judge(self.name, sides, session.head_tokens) for judge in (answers_verdict, saves_verdict)]


def still_on(sides: Sides, head: int) -> str | None:
    """Why the control's cache is not off, None where nothing says so. The clock counts beside the
    control's own first sights."""
    repeated = sides.repeated
    if repeated.tokens is not None and repeated.tokens > head:
        return f"the control's cache is on: sent again, the prompt {of_prompt(repeated)}"
    read_s = Timing(tuple(one.waited_s for one in sides.off)).median_s
    if repeated.clock is Warmth.WARM and 2 * repeated.waited_s < read_s:
        waited = f"{seconds(repeated.waited_s)} instead of {seconds(read_s)}"
        return f"the control's cache is on: sent again, its first token came after {waited}"
    return None


def answers_verdict(gate: str, sides: Sides, head: int) -> Verdict:
    """Whether answers with the cache on are those without."""
    outcome, reason = _answers(sides, head)
    differences = [one.difference for _, one in sides.answers if one.difference is not None]
    figures: dict[str, Figure] = {"score_difference": max(differences, default=None)}
    cases = (sides.off[0].case, sides.cold.case, sides.warm[0].case)
    return Verdict(gate, outcome, reason, sides.tier.name, ANSWERS, figures, cases)


def _answers(sides: Sides, head: int) -> tuple[Outcome, str]:
    on = still_on(sides, head)
    if on:
        return Outcome.INCONCLUSIVE, on
    for answer in (Answer.DIFFERENT, Answer.UNDECIDED):
        for words, one in sides.answers:
            if one.answer is answer:
                return outcome_of(one), f"{words} with the cache on, beside the cache off: {one.detail}"
    words = "; ".join(f"{words}: {one.detail}" for words, one in sides.answers)
    return Outcome.PASS, f"first sight and repeat answer as without a cache ({words})"


def saves_verdict(gate: str, sides: Sides, head: int) -> Verdict:
    """What the cache saves on a repeat, and what it costs on first sight."""
    off = Timing(tuple(one.waited_s for one in sides.off))
    warm = Timing(tuple(one.waited_s for one in sides.warm))
    outcome, reason = _saves(sides, off, warm, head)
    figures: dict[str, Figure] = {
        "off_s": round(off.median_s, 4),
        "off_spread_s": round(off.spread_s, 4),
        "warm_s": round(warm.median_s, 4),
        "warm_spread_s": round(warm.spread_s, 4),
        "cold_s": round(sides.cold.waited_s, 4),
        "saved_s": round(off.median_s - warm.median_s, 4),
        "reused_tokens": sides.warm_reuse.stated,
        "off_samples": len(sides.off),
    }
    cases = tuple(one.case for one in (*sides.off, sides.repeat, sides.cold, *sides.warm))
    return Verdict(gate, outcome, reason, sides.tier.name, SAVES, figures, cases)


def _saves(sides: Sides, off: Timing, warm: Timing, head: int) -> tuple[Outcome, str]:
    on = still_on(sides, head)
    if on:
        return Outcome.INCONCLUSIVE, on
    saved, noise = off.median_s - warm.median_s, off.spread_s + warm.spread_s
    times = f"first token after {seconds(warm.median_s)} with the cache, {seconds(off.median_s)} without"
    if saved > noise:
        share = round(100 * saved / off.median_s)
        first = f"first sight takes {seconds(sides.cold.waited_s)} with it"
        return Outcome.PASS, f"{times}: saves {seconds(saved)} ({share} %) on a repeat; {first}"
    if far_apart(max(off.samples), min(warm.samples)):
        return Outcome.FAIL, f"{times}: the cache costs {seconds(-saved)} on a repeat"
    reused = sides.warm_reuse.tokens
    if sides.warm_reuse.clock is Warmth.COLD and reused is not None and reused <= head:
        return Outcome.FAIL, f"{times}: the cache saves nothing on a repeat, {of_prompt(sides.warm_reuse)}"
    if -saved > noise or sides.warm_reuse.clock is Warmth.COLD:
        return (
            Outcome.INCONCLUSIVE,
            f"{times}: by the clock the cache saves nothing, and nothing else says so",
        )
    return Outcome.INCONCLUSIVE, f"{times}: no more than the samples spread ({seconds(noise)})"


GATE = ControlGate()
