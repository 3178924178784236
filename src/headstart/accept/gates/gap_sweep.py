"""Gap sweep: edits at many depths show to which positions the server can go back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import mean

from headstart.accept.exchange import Ask
from headstart.accept.fixtures import Passage, Tier
from headstart.accept.gates import Need
from headstart.accept.hits import joined, metered_reuse
from headstart.accept.judge import Calibration, Reach, Step, gap, granularity
from headstart.accept.session import Session, SweepPoint
from headstart.accept.verdict import Figure, Outcome, Verdict

LARGEST_TOKENS = 20_000
STEPS = (64, 256, 512, 1024, 2048, 4096, 8192)
MOST_POINTS = 30
TAIL_CHARS = 160
"""Text kept after an edit, so that a point costs little where the cache works."""
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
        most = first.prompt_tokens or tier.least
        marker = whole.markers[0].name
        points: list[SweepPoint] = []
        sent: set[str] = set()
        # From the end to the beginning: each shares more with the whole text than with any before it.
        for number, depth in enumerate(depths(session.head_tokens, most), 1):
            session.say(f"edit at {depth} of {most} tokens ({number})")
            at, ask = self._aimed(session, first.ask, whole, depth, marker)
            if ask.text in sent:  # depths behind the text's end come to the same edit
                continue
            sent.add(ask.text)
            second = second_visit(session, whole, at, ask, marker)
            points.append(self._point(session, first.ask, ask, second, tier))
        session.found.sweep = points
        found = verdict(points, tier, session)
        return [found]

    def _aimed(
        self, session: Session, first: Ask, whole: Passage, depth: int, marker: str
    ) -> tuple[int, Ask]:
        """An ask that parts from `first` at about `depth` tokens: exactly there where the server's
        tokenizer can be asked and a character's token begins there."""
        per_token = session.calibration.chars_per_token
        at = int(depth * per_token)
        best: tuple[int, int, Ask] | None = None
        for _ in range(AIMS):
            at = min(max(at, 40), len(whole.text) - 2)
            ask = session.ask(
                struck(whole, at), marker=marker, max_tokens=1, logprobs=0, label=f"edit at {depth}"
            )
            reach = session.divergence(first, ask)
            miss = depth - reach.low
            if best is None or abs(miss) < best[0]:
                best = (abs(miss), at, ask)
            if miss == 0 or not reach.exact:
                break
            at += int(miss * per_token) or (1 if miss > 0 else -1)
        assert best is not None
        return best[1:]

    def _point(self, session: Session, first: Ask, ask: Ask, second: Ask, tier: Tier) -> SweepPoint:
        reach = session.divergence(first, ask)
        done = session.send(ask, tier=tier)
        if session.facts.recurrent:
            # The first visit of a divergence leaves the state there; the second is judged.
            done = session.send(second, tier=tier)
        told = metered_reuse(done) if done.reused is None else done.reused
        return SweepPoint(reach, told if done.ok else None, done.waited_s, done.case)


def sweep_tier(tiers: Sequence[Tier]) -> Tier:
    """The largest tier that is not too long to go back and forth in; else the smallest."""
    return max((t for t in tiers if t.tokens <= LARGEST_TOKENS), key=lambda t: t.tokens, default=tiers[0])


def depths(head: int, most: int) -> list[int]:
    """Positions to edit at, the deepest first: around powers of two and multiples of block sizes."""
    wanted: set[int] = set()
    for step in STEPS:
        multiples = range(step, most - 8, step)
        for around in {*multiples[:1], *multiples[1:3], *multiples[-1:]}:
            wanted |= {around - 1, around, around + 1}
    for part in (0.3, 0.55, 0.8):
        wanted.add(int(most * part))
    inside = sorted(depth for depth in wanted if head < depth < most - 8)
    if len(inside) > MOST_POINTS:
        # Kept by their neighbourhoods, so that a point on the grid keeps those beside it.
        stride = len(inside) / MOST_POINTS
        inside = sorted({inside[int(number * stride)] for number in range(MOST_POINTS)})
    return inside[::-1]


def struck(whole: Passage, at: int, letter: str = "q") -> Passage:
    """`whole` with one character changed at `at`, cut shortly after it."""
    return whole.struck(at, letter).cut(min(len(whole.text), at + TAIL_CHARS))


def second_visit(session: Session, whole: Passage, at: int, ask: Ask, marker: str) -> Ask:
    """Another edit at the same place: it parts from the text, and from the first edit, where that did."""
    passage = struck(whole, at, "z")
    label = f"{ask.label}, second visit"
    return session.ask(passage, marker=marker, max_tokens=1, logprobs=0, label=label)


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
