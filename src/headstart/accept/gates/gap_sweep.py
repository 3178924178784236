"""Gap sweep: edits at many depths show to which positions the server can go back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import mean

from headstart.accept.exchange import Ask
from headstart.accept.fixtures import Passage, Tier
from headstart.accept.gates import Need
from headstart.accept.gates.evidence import cut_after
from headstart.accept.hits import joined, metered_reuse
from headstart.accept.judge import Calibration, Reach, Step, gap, granularity
from headstart.accept.session import Session, SweepPoint
from headstart.accept.verdict import Figure, Outcome, Verdict

LARGEST_TOKENS = 20_000
STEPS = (64, 256, 512, 1024, 2048, 4096, 8192)
HEAD_CHARS = 40
"""Edits begin after the salt's line."""
AIMS = 6
"""How often the place of an edit is corrected to hit a token."""


@dataclass(frozen=True)
class GapSweep:
    name: str = "gap_sweep"
    title: str = "gap sweep"
    shows: str = "Wherever prompts part, the server resumes there, or on the grid it states."
    needs: frozenset[Need] = frozenset()

    def run(self, session: Session) -> list[Verdict]:
        tier = sweep_tier(session.tiers)
        family, first = session.first_sight(tier)
        if first.failure is not None:
            words = f"the first request failed: {first.failure.detail}"
            return [Verdict(self.name, Outcome.INCONCLUSIVE, words, tier.name, cases=[first.case])]
        whole = family.at(tier)
        last = edited(session, whole, len(whole.text) - 2, "q")
        most = session.divergence(first.ask, last).low
        points: list[SweepPoint] = []
        # From the end to the beginning: each shares more with the whole text than with any before it.
        planned = depths(session.head_tokens, most, session.options.sweep_points)
        seen: set[int] = set()
        for number, depth in enumerate(planned, 1):
            at = self._aim(session, first.ask, whole, depth)
            if at in seen:
                continue
            seen.add(at)
            session.say(f"edit at {depth} of {most} tokens ({number} of {len(planned)})")
            points.append(self._point(session, first.ask, whole, at, tier))
        session.found.sweep = points
        found = verdict(points, tier, session)
        return [found]

    def _aim(self, session: Session, first: Ask, whole: Passage, depth: int) -> int:
        """Index of a character whose change makes a prompt part from `first` at about `depth` tokens:
        exactly there where the server's tokenizer can be asked and a token begins there."""
        per_token = session.calibration.chars_per_token
        at = int(depth * per_token)
        best = (depth, at)
        for _ in range(AIMS):
            at = min(max(at, HEAD_CHARS), len(whole.text) - 2)
            reach = session.divergence(first, edited(session, whole, at, "q"))
            miss = depth - reach.low
            best = min(best, (abs(miss), at))
            if miss == 0 or not reach.exact:
                break
            at += int(miss * per_token) or (1 if miss > 0 else -1)
        return best[1]

    def _point(self, session: Session, first: Ask, whole: Passage, at: int, tier: Tier) -> SweepPoint:
        ask = edited(session, whole, at, "q")
        reach = session.divergence(first, ask)
        done = session.send(ask, tier=tier)
        if session.facts.recurrent:
            # The first visit of a divergence leaves the state there; the second, with another character
            # in the same place, is judged.
            ask = edited(session, whole, at, "z")
            reach = session.divergence(first, ask)
            done = session.send(ask, tier=tier)
        told = metered_reuse(done) if done.reused is None else done.reused
        return SweepPoint(reach, told if done.ok else None, done.waited_s, done.case)


def sweep_tier(tiers: Sequence[Tier]) -> Tier:
    """The largest tier that is not too long to go back and forth in; else the smallest."""
    return max((t for t in tiers if t.tokens <= LARGEST_TOKENS), key=lambda t: t.tokens, default=tiers[0])


def depths(head: int, most: int, count: int) -> list[int]:
    """At most `count` positions to edit at, the deepest first: around powers of two and block sizes."""
    wanted: set[int] = set()
    for step in STEPS:
        multiples = range(step, most - 8, step)
        for around in {*multiples[:1], *multiples[1:3], *multiples[-1:]}:
            wanted |= {around - 1, around, around + 1}
    for part in (0.3, 0.55, 0.8):
        wanted.add(int(most * part))
    inside = sorted(depth for depth in wanted if head < depth < most - 8)
    if len(inside) > count:
        # Kept by their neighbourhoods, so that a point on the grid keeps those beside it.
        stride = len(inside) / count
        inside = sorted({inside[int(number * stride)] for number in range(count)})
    return inside[::-1]


def edited(session: Session, whole: Passage, at: int, letter: str) -> Ask:
    """`whole` with one character changed at `at`, cut shortly after it, with a question of its own."""
    passage = cut_after(whole.struck(at, letter), at)
    return session.ask(passage, marker="EARLY", max_tokens=1, logprobs=0, label=f"edit at character {at}")


def verdict(points: Sequence[SweepPoint], tier: Tier, session: Session) -> Verdict:
    """Also leaves the granularity for later gates."""
    known = [(point.divergence, point.restored) for point in points if point.restored is not None]
    cases = [point.case for point in points]
    if not known:
        words = "the server does not say what it reused, so its grid cannot be found"
        return Verdict("gap_sweep", Outcome.INCONCLUSIVE, words, tier.name, "", {"points": 0}, cases)
    step = granularity(known)
    session.found.step_tokens = step.step_tokens
    return judged(
        known, step, tier, allowance=session.allowance, calibration=session.calibration, cases=cases
    )


def judged(
    known: Sequence[tuple[Reach, int]],
    step: Step,
    tier: Tier,
    *,
    allowance: int,
    calibration: Calibration,
    cases: Sequence[str],
) -> Verdict:
    """From (divergence, restored) pairs."""
    gaps = [gap(reach, restored) or 0 for reach, restored in known]
    past = max(restored - reach.high for reach, restored in known)
    cost_s = mean(gaps) * calibration.read_s_per_token
    figures: dict[str, Figure] = {
        "points": len(known),
        "step_tokens": step.step_tokens,
        "minus_tokens": step.minus,
        "granularity": step.words,
        "largest_gap_tokens": max(gaps),
        "mean_gap_tokens": mean(gaps),
        "cost_s_per_turn": cost_s,
    }
    cost = f"{mean(gaps):.0f} tokens and {cost_s:.2f} s lost a turn on average, {max(gaps)} tokens at most"
    outcome, reasons = Outcome.PASS, [step.words, cost]
    if past > 0:
        outcome = Outcome.FAIL
        reasons.insert(0, f"claims {past} tokens past the point where the prompts part")
    elif max(gaps) > allowance:
        outcome = Outcome.FAIL
        reasons.append(f"{allowance} would be the block size")
    return Verdict("gap_sweep", outcome, joined(reasons), tier.name, "", figures, cases)


GATE = GapSweep()
