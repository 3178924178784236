"""A long prefill cut off halfway: what was read is not thrown away, and the next answer is right."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from headstart.accept import judge
from headstart.accept.clock import Doubt, measure_again
from headstart.accept.exchange import Exchange, FailureKind
from headstart.accept.fixtures import Tier
from headstart.accept.gates import Need
from headstart.accept.gates.evidence import restored
from headstart.accept.gates.trouble import said, trouble
from headstart.accept.judge import Answer, Calibration, Sameness, Warmth
from headstart.accept.session import Session
from headstart.accept.verdict import Figure, Outcome, Verdict

NAME = "cancel"
KEPT, ANSWER = "kept", "answer"
LONG_ENOUGH_S = 2.0
SHARES = (0.5, 0.3, 0.8)
"""Of the reading time after which the connection is closed, in the order they are tried."""
CLOCK_KEPT, CLOCK_LOST = 0.6, 0.2
HASTY_S = 0.5
LATEST_SHARE = 0.8


def kept_verdict(
    tier: str,
    cut: Exchange,
    again: Exchange,
    *,
    cut_after_s: float,
    allowance: int,
    calibration: Calibration,
) -> Verdict:
    """How much of what was read before the disconnect the second request found. `cut_after_s`: when the
    connection was to be closed."""
    if cut.ok:
        reason = f"the reply was complete before the connection was closed after {cut_after_s:.2f} s"
        return Verdict(NAME, Outcome.INCONCLUSIVE, reason, tier=tier, part=KEPT, cases=[cut.case])
    ours = cut.failure is not None and cut.failure.kind is FailureKind.CANCELLED
    failed = trouble(NAME, [again] if ours else [cut, again], tier=tier, part=KEPT)
    if failed is not None:
        return failed
    prompt = again.prompt_tokens or 0
    reused = restored(again)
    read = _read_before(cut, again, prompt, calibration)
    found = reused if reused is not None else prompt - judge.read_by_clock(again.waited_s, calibration)
    figures: dict[str, Figure] = {
        "prompt_tokens": again.prompt_tokens,
        "cut_after_s": cut.total_s,
        "read_before_cut_tokens": int(read),
        "kept_tokens": None if reused is None else reused,
        "kept_by_clock_tokens": None if reused is not None else max(0, int(found)),
        "again_s": again.waited_s,
        "read_is_counted": _counted(cut) is not None,
    }
    outcome, reason = _judged(read, max(0.0, found), reused is None, allowance)
    when = f"cut off after {cut.total_s:.1f} s with about {read:,.0f} of {prompt:,} tokens read"
    cases = [cut.case, again.case]
    return Verdict(NAME, outcome, f"{when}: {reason}", tier=tier, part=KEPT, figures=figures, cases=cases)


def _read_before(cut: Exchange, again: Exchange, prompt: int, calibration: Calibration) -> float:
    """Tokens the server can have read by then: by its counters where they moved, else by the clock, at
    the speed it was calibrated at or that of the request after, whichever is slower."""
    each_s = calibration.read_s_per_token
    left = prompt - (restored(again) or 0)
    if restored(again) is not None and left > 0:
        each_s = max(each_s, (again.waited_s - calibration.base_s) / left)
    by_clock = (cut.total_s - calibration.base_s) / each_s if each_s > 0 else 0.0
    counted = _counted(cut)
    return max(0.0, min(by_clock, float(prompt), float(prompt) if counted is None else counted))


def _counted(cut: Exchange) -> float | None:
    """Tokens read before the cut by the server's counters, None where they did not move."""
    return cut.counters.read_tokens or None if cut.counters is not None else None


def _judged(read: float, found: float, clock: bool, allowance: int) -> tuple[Outcome, str]:
    if read / 2 <= allowance:
        return Outcome.INCONCLUSIVE, f"too few to tell from the {allowance:,} tokens a cache may lose"
    if clock:
        return _by_clock(read, found)
    if found >= read / 2 - allowance:
        return Outcome.PASS, f"{found:,.0f} were kept"
    if found == 0:
        return Outcome.FAIL, "all of it was thrown away and read again"
    return Outcome.FAIL, f"only {found:,.0f} were kept, the rest was read again"


def _by_clock(read: float, found: float) -> tuple[Outcome, str]:
    if found >= CLOCK_KEPT * read:
        return Outcome.PASS, f"by the clock about {found:,.0f} were kept"
    if found <= CLOCK_LOST * read:
        return Outcome.FAIL, "by the clock everything was read again"
    return Outcome.INCONCLUSIVE, "the server does not say what it kept, and the clock cannot tell"


def answer_verdict(
    tier: str, again: Exchange, cold: Exchange | None, sameness: Sameness | None, right: bool | None
) -> Verdict:
    """Whether the request after the cut was answered right. `sameness`: to `cold`, the answer without a
    cache. `right`: its planted fact, by a model that can be asked."""
    failed = trouble(NAME, [again], tier=tier, part=ANSWER)
    if failed is not None:
        return failed
    cases = [one.case for one in (again, cold) if one is not None]
    figures: dict[str, Figure] = {
        "difference": sameness.difference if sameness else None,
        "fact_right": right,
    }

    def answer(outcome: Outcome, reason: str) -> Verdict:
        return Verdict(NAME, outcome, reason, tier=tier, part=ANSWER, figures=figures, cases=cases)

    if sameness is not None and sameness.answer is Answer.DIFFERENT:
        return answer(Outcome.FAIL, f"after the cut the answer is another: {sameness.detail}")
    if sameness is not None and sameness.answer is Answer.SAME:
        return answer(Outcome.PASS, f"after the cut the answer is the cold one: {sameness.detail}")
    if right:
        return answer(Outcome.PASS, "after the cut the planted fact is answered right")
    if right is False:
        reason = f"the planted fact is answered wrong ({again.answer[:40]!r}), with no cold answer to compare"
        return answer(Outcome.INCONCLUSIVE, reason)
    return answer(Outcome.INCONCLUSIVE, "neither a cold answer nor a planted fact to judge the answer by")


class Cancel:
    name = NAME
    title = "cancelled prefill"
    shows = "what was read before a client hung up is kept, and the next answer is right"
    needs: frozenset[Need] = frozenset()

    def run(self, session: Session) -> list[Verdict]:
        sizes = list(dict.fromkeys((session.small, *session.tiers)))
        tier = choose(sizes, session.calibration, session.allowance)
        tried: list[list[Verdict]] = []
        for share in SHARES:
            tried.append(_attempt(session, tier, share))
            if settled(tried[-1]):
                return tried[-1]
        lost = [found for found in tried if found[0].outcome is Outcome.FAIL]
        if not lost:
            return tried[-1]
        kept, *answers = lost[-1]
        doubt = None
        if kept.figures.get("kept_by_clock_tokens") is not None:
            doubt = measure_again(session, Warmth.COLD, lambda: _timed(session, tier))
        return [weighed(kept, len(lost), doubt), *answers]


def weighed(kept: Verdict, losses: int, doubt: Doubt | None) -> Verdict:
    """A loss after `losses` attempts that lost. How much was read before a cut is often known by the clock
    alone, so one loss shows little; `doubt`: what came of measuring again, where what was kept is too."""
    if "failed_requests" in kept.figures:
        return kept
    if doubt is not None:
        outcome = Outcome.FAIL if doubt.agreed else Outcome.INCONCLUSIVE
        figures = {**kept.figures, **doubt.figures()}
        cases = [*kept.cases, *doubt.cases]
        reason = f"{kept.reason}; {doubt.words}"
        return replace(kept, outcome=outcome, reason=reason, figures=figures, cases=cases)
    if losses > 1 or kept.figures.get("read_is_counted"):
        return kept
    reason = f"{kept.reason}; but only once, and by the clock alone was so much read before"
    return replace(kept, outcome=Outcome.INCONCLUSIVE, reason=reason)


def _timed(session: Session, tier: Tier) -> tuple[Exchange, Exchange]:
    """A new text read whole, and another again that was cut off near its end."""
    whole, other = session.fresh(tier), session.fresh(tier)
    cold = session.send(session.ask(whole, label=f"{tier.name}, timed"), tier=tier)
    ask = session.ask(other, label=f"{tier.name}, timed, cut off")
    session.send(ask, tier=tier, cancel_after_s=LATEST_SHARE * cold.waited_s)
    return cold, session.send(replace(ask, label=f"{tier.name}, timed, again"), tier=tier)


def settled(found: Sequence[Verdict]) -> bool:
    """Whether another attempt would say no more: timing is to blame for what could not be judged, for a
    loss where the connection was closed within a blink, and where only the clock says what was read."""
    kept = found[0]
    cut_after_s = kept.figures.get("cut_after_s")
    hasty = isinstance(cut_after_s, float) and cut_after_s < HASTY_S
    shown = "failed_requests" in kept.figures or (kept.figures.get("read_is_counted") and not hasty)
    by_clock = kept.figures.get("kept_by_clock_tokens") is not None
    return kept.outcome is Outcome.PASS or bool(kept.outcome is Outcome.FAIL and shown and not by_clock)


def choose(tiers: Sequence[Tier], calibration: Calibration, allowance: int) -> Tier:
    """The smallest tier that takes long enough to read to be cut halfway, so that half of what was read is
    more than a cache may lose; else the largest."""
    long = [
        tier
        for tier in tiers
        if _reading_s(tier, calibration) >= LONG_ENOUGH_S and SHARES[0] * tier.least / 2 > allowance
    ]
    return long[0] if long else tiers[-1]


def _reading_s(tier: Tier, calibration: Calibration) -> float:
    return calibration.base_s + calibration.read_s_per_token * tier.least


def _attempt(session: Session, tier: Tier, share: float) -> list[Verdict]:
    passage = session.fresh(tier)
    after_s = max(0.02, share * _reading_s(tier, session.calibration))
    session.say(f"cancel: closing the connection after {after_s:.2f} s")
    ask = session.ask(passage, label=f"{tier.name}, cut off")
    cut = session.send(ask, tier=tier, cancel_after_s=after_s)
    again = session.send(session.ask(passage, label=f"{tier.name}, again"), tier=tier)
    kept = kept_verdict(
        tier.name,
        cut,
        again,
        cut_after_s=after_s,
        allowance=session.allowance,
        calibration=session.calibration,
    )
    if said(again) or kept.outcome is Outcome.INCONCLUSIVE:
        return [kept]
    cold = session.cold(ask, tier=tier)
    sameness = session.same(cold, again, passage) if cold is not None else None
    right = session.facts_right(again, passage)
    return [kept, answer_verdict(tier.name, again, cold, sameness, right)]


GATE = Cancel()
