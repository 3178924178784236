"""Honesty: what the reply says was reused, against the server's counters, the clock and other wires."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from headstart.accept.clock import Doubt, measure_again, repeat_of, timed_tier
from headstart.accept.exchange import Exchange
from headstart.accept.gates import Need
from headstart.accept.hits import metered_reuse
from headstart.accept.judge import Calibration, Warmth, warmth
from headstart.accept.session import Session
from headstart.accept.verdict import Outcome, Verdict

SLACK_TOKENS = 2


@dataclass(frozen=True)
class Honesty:
    name: str = "honesty"
    title: str = "honesty"
    shows: str = "Cached tokens in the reply agree with the metrics, the clock, and every other way to ask."
    needs: frozenset[Need] = frozenset()

    def run(self, session: Session) -> list[Verdict]:
        tier = session.small
        _, cold = session.first_sight(tier)
        ask = cold.ask
        warm = session.send(replace(ask, label="streamed"), tier=tier)
        whole = session.send(replace(ask, stream=False, label="not streamed"), tier=tier)
        verdicts = [
            stated([cold, warm, whole]),
            metered([cold, warm, whole]),
            self._clocked(session, [cold, warm]),
            streamed(warm, whole),
        ]
        others = [wire for wire in session.wires if wire.name != session.wire.name]
        for wire in others:
            converted = replace(session.convert(ask, wire), logprobs=0)
            pair = [
                session.send(replace(converted, label=f"{wire.name}, {word}"), tier=tier, wire=wire)
                for word in ("first", "again")
            ]
            verdicts.append(other_wire(wire.name, warm, pair, session.allowance))
        return [replace(verdict, tier=tier.name) for verdict in verdicts]

    def _clocked(self, session: Session, done: Sequence[Exchange]) -> Verdict:
        contradiction = contradicted(done, session.calibration)
        if contradiction is None:
            return clocked(done, session.calibration)
        one, clock = contradiction
        pair = repeat_of(session, timed_tier(session))
        return contradicting(
            one, clock, measure_again(session, clock, pair, lambda other: says(other, clock))
        )


def _cases(done: Sequence[Exchange]) -> list[str]:
    return [one.case for one in done]


def _failed(part: str, done: Sequence[Exchange]) -> Verdict | None:
    failure = next((one.failure for one in done if one.failure is not None), None)
    if failure is None:
        return None
    words = f"a request failed: {failure.detail}"
    return Verdict("honesty", Outcome.FAIL, words, part=part, cases=_cases(done))


def stated(done: Sequence[Exchange]) -> Verdict:
    """Whether every reply says how much it reused."""
    silent = [one for one in done if one.ok and one.reused is None]
    if (failed := _failed("stated", done)) is not None:
        return failed
    if silent:
        words = f"{len(silent)} of {len(done)} replies do not say how many prompt tokens were reused"
        return Verdict("honesty", Outcome.FAIL, words, part="stated", cases=_cases(silent))
    words = "every reply says how many prompt tokens were reused"
    return Verdict("honesty", Outcome.PASS, words, part="stated", cases=_cases(done))


def metered(done: Sequence[Exchange]) -> Verdict:
    """Replies against the server's counters."""
    pairs = [(one, metered_reuse(one)) for one in done if one.ok and one.reused is not None]
    known = [(one, counted) for one, counted in pairs if counted is not None]
    if not known:
        words = "the server has no counters of reused or read prompt tokens to compare with"
        return Verdict("honesty", Outcome.UNSUPPORTED, words, part="metrics", cases=_cases(done))
    one, counted = max(known, key=lambda pair: abs(pair[1] - (pair[0].reused or 0)))
    off = abs(counted - (one.reused or 0))
    figures = {"reply_tokens": one.reused, "metrics_tokens": counted}
    words = f"the reply says {one.reused} reused, the server's counters {counted}"
    outcome = Outcome.FAIL if off > SLACK_TOKENS else Outcome.PASS
    return Verdict("honesty", outcome, words, part="metrics", figures=figures, cases=[one.case])


def says(one: Exchange, clock: Warmth) -> bool:
    """Whether a reply states the opposite of what the clock says: a hit read whole, or a miss that came at
    once."""
    if one.reused is None or not one.prompt_tokens:
        return False
    share = one.reused / one.prompt_tokens
    return (clock is Warmth.COLD and share > 0.9) or (clock is Warmth.WARM and share < 0.1)


def contradicted(done: Sequence[Exchange], calibration: Calibration) -> tuple[Exchange, Warmth] | None:
    """The first reply that the clock speaks against, and what the clock says of it."""
    for one in done:
        if one.failure is None and one.prompt_tokens and one.first_token_s is not None:
            clock = warmth(one.first_token_s, one.prompt_tokens, calibration)
            if says(one, clock):
                return one, clock
    return None


def contradicting(one: Exchange, clock: Warmth, doubt: Doubt) -> Verdict:
    """A reply against the clock, by what came of measuring it again."""
    words = f"{one.reused} of {one.prompt_tokens} tokens reused by the reply, but {one.waited_s:.3f} s"
    cold = clock is Warmth.COLD
    words += " to the first token is " + (
        "the time of reading it all" if cold else "far too short for reading it"
    )
    outcome = Outcome.FAIL if doubt.agreed else Outcome.INCONCLUSIVE
    cases = [one.case, *doubt.cases]
    return Verdict(
        "honesty", outcome, f"{words}; {doubt.words}", part="clock", figures=doubt.figures(), cases=cases
    )


def clocked(done: Sequence[Exchange], calibration: Calibration) -> Verdict:
    """Replies that the clock does not speak against."""
    timed = [one for one in done if one.failure is None and one.prompt_tokens and one.first_token_s]
    clocks = [warmth(one.waited_s, one.prompt_tokens or 0, calibration) for one in timed]
    if all(clock is Warmth.UNCLEAR for clock in clocks):
        words = "reading takes too little time on this machine for the clock to tell"
        return Verdict("honesty", Outcome.INCONCLUSIVE, words, part="clock", cases=_cases(done))
    times = " and ".join(f"{one.waited_s:.3f} s" for one in done)
    words = f"the first tokens came after {times}, as the replies have it"
    return Verdict("honesty", Outcome.PASS, words, part="clock", cases=_cases(done))


def streamed(warm: Exchange, whole: Exchange) -> Verdict:
    """A stream against a reply in one piece."""
    pair = [warm, whole]
    if (failed := _failed("streamed", pair)) is not None:
        return failed
    words = f"streamed: {warm.reused} reused; in one piece: {whole.reused}"
    figures = {"streamed_tokens": warm.reused, "whole_tokens": whole.reused}
    if (warm.reused is None) != (whole.reused is None):
        outcome = Outcome.FAIL
    elif warm.reused is None or whole.reused is None:
        outcome = Outcome.INCONCLUSIVE
    else:
        outcome = Outcome.PASS if abs(warm.reused - whole.reused) <= SLACK_TOKENS else Outcome.FAIL
    return Verdict("honesty", outcome, words, part="streamed", figures=figures, cases=_cases(pair))


def other_wire(name: str, warm: Exchange, pair: Sequence[Exchange], allowance: int) -> Verdict:
    """The same content over another wire, twice: its second reply must tell a hit as the first wire
    does. Where the prompt has the same length it is the same prompt, so its first reply must too."""
    if (failed := _failed(name, pair)) is not None:
        return failed
    first, again = pair
    figures = {"reused_tokens": again.reused, "prompt_tokens": again.prompt_tokens}
    if again.reused is None or again.prompt_tokens is None:
        words = f"{name} does not say what was reused"
        outcome = Outcome.FAIL if warm.reused is not None else Outcome.INCONCLUSIVE
        return Verdict("honesty", outcome, words, part=name, figures=figures, cases=_cases(pair))
    told = [again]
    if warm.prompt_tokens == first.prompt_tokens and warm.reused is not None:
        told.append(first)
    low = min(one.reused or 0 for one in told)
    words = f"{name} says {low} of {again.prompt_tokens} reused on a prompt that was read before"
    outcome = Outcome.PASS if again.prompt_tokens - low <= allowance + SLACK_TOKENS else Outcome.FAIL
    return Verdict("honesty", outcome, words, part=name, figures=figures, cases=_cases(pair))


GATE = Honesty()
