"""Prompts as long as whole blocks, one token less and one more: is the repeat the same answer?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from headstart.accept import judge
from headstart.accept.exchange import Ask, Exchange
from headstart.accept.fixtures import Marker, Passage
from headstart.accept.gates import Need
from headstart.accept.gates.evidence import prompt_length, restored
from headstart.accept.gates.trouble import trouble
from headstart.accept.judge import Answer, Sameness, Warmth
from headstart.accept.session import Session
from headstart.accept.verdict import Outcome, Verdict

NAME = "length_sweep"
SIZES = (64, 128, 256, 512, 1024, 2048)
LEAST_TOKENS = 160
LARGEST_BLOCK = 8192
PADS = "abcdef"
FITTING_STEPS = 4


@dataclass(frozen=True)
class Point:
    """One length. `wanted`: prompt tokens aimed at. `warmth`: of the repeat, by the clock."""

    wanted: int
    first: Exchange
    repeat: Exchange
    sameness: Sameness
    warmth: Warmth

    @property
    def resumed(self) -> bool:
        """Something shows that the repeat came from a cache."""
        reused = restored(self.repeat)
        return self.warmth is Warmth.WARM if reused is None else reused > 0

    @property
    def exact(self) -> bool:
        """The prompt was as long as it was meant to be."""
        return self.first.prompt_tokens == self.repeat.prompt_tokens == self.wanted

    @property
    def shown(self) -> bool:
        return self.sameness.answer is Answer.SAME and self.resumed and self.exact


def lengths(block: int | None, most: int) -> list[int]:
    """Prompt lengths to try: one multiple of every size that fits into `most`, each with its neighbours."""
    sizes = {*SIZES, *([block] if block is not None and 1 < block <= LARGEST_BLOCK else [])}
    multiples = {-(-LEAST_TOKENS // size) * size for size in sizes}
    found = {multiple + by for multiple in multiples for by in (-1, 0, 1)}
    return sorted(length for length in found if length <= most)


def verdict(points: Sequence[Point]) -> Verdict:
    """What all points say together."""
    failed = trouble(NAME, [one for point in points for one in (point.first, point.repeat)])
    if failed is not None:
        return failed
    wrong = [point for point in points if point.sameness.answer is Answer.DIFFERENT]
    shown = [point for point in points if point.shown]
    figures = _figures(points, shown)
    cases = [case for point in (wrong or points) for case in (point.first.case, point.repeat.case)]
    if wrong:
        where = ", ".join(f"{_length(point):,}" for point in wrong[:6])
        of = f"{len(wrong)} of {len(points)} lengths"
        reason = f"another answer at {where} tokens ({of}): {wrong[0].sameness.detail}"
        return Verdict(NAME, Outcome.FAIL, reason, figures=figures, cases=cases)
    if 2 * len(shown) < len(points) or not points:
        return Verdict(NAME, Outcome.INCONCLUSIVE, _missing(points, len(shown)), figures=figures, cases=cases)
    span = f"{_length(points[0]):,} to {_length(points[-1]):,} tokens"
    moved = figures["largest_difference"]
    by = f"; log-probabilities moved by {moved:.2g} at most" if isinstance(moved, float) else ""
    reason = f"the repeat is the first answer at {len(shown)} of {len(points)} lengths from {span}{by}"
    return Verdict(NAME, Outcome.PASS, reason, figures=figures, cases=cases)


def _figures(points: Sequence[Point], shown: Sequence[Point]) -> dict[str, int | float | None]:
    differences = [p.sameness.difference for p in points if p.sameness.difference is not None]
    return {
        "lengths": len(points),
        "lengths_shown": len(shown),
        "lengths_exact": sum(point.exact for point in points),
        "lengths_different": sum(point.sameness.answer is Answer.DIFFERENT for point in points),
        "lengths_resumed": sum(point.resumed for point in points),
        "largest_difference": max(differences, default=None),
    }


def _missing(points: Sequence[Point], shown: int) -> str:
    if not points:
        return "no prompt length around a block fits into the tiers"
    if not any(point.resumed for point in points):
        return (
            f"nothing shows that one of {len(points)} repeats came from a cache: equal answers prove nothing"
        )
    if all(point.sameness.answer is Answer.UNDECIDED for point in points):
        return f"there was nothing to compare by: {points[0].sameness.detail}"
    if all(point.repeat.prompt_tokens is None for point in points):
        return "the server does not say how long a prompt is, so no length is known to be at a block"
    if not any(point.exact for point in points):
        return "no prompt came out as long as it was meant to be"
    return f"only {shown} of {len(points)} lengths could be judged"


def _length(point: Point) -> int:
    return point.first.prompt_tokens or point.wanted


def padded(passage: Passage, pad: str, count: int, single: int = 0) -> Passage:
    """The passage after `count` short words and `single` letters, which make it a little longer."""
    head = f"{pad} " * count + "x" * single
    moved = tuple(Marker(one.name, one.value, one.at + len(head)) for one in passage.markers)
    return Passage(head + passage.text, moved, passage.tier)


@dataclass(frozen=True)
class Pads:
    """How many words and letters are put in front, and how long the prompt then is."""

    count: int
    single: int = 0

    def towards(self, wanted: int, has: int, base: int) -> Pads:
        """What makes a prompt of `has` tokens one of `wanted`; `base`: its length without any."""
        each = round((has - base - self.single) / self.count) if self.count else 1
        if each <= 1:
            return Pads(max(0, self.count + wanted - has), self.single)
        return Pads(*divmod(max(0, wanted - base), each))


class LengthSweep:
    name = NAME
    title = "length sweep"
    shows = "a repeated prompt gets its first answer at lengths around whole blocks, where caches miscount"
    needs: frozenset[Need] = frozenset()

    def run(self, session: Session) -> list[Verdict]:
        most = session.tiers[-1].most if session.tiers else 0
        wanted = lengths(session.facts.block_tokens or session.found.step_tokens, most)
        points = []
        for start in range(0, len(wanted), 3):
            session.say(f"length sweep: {wanted[start]:,} tokens")
            points += _around(session, wanted[start : start + 3])
        return [verdict(points)]


def _around(session: Session, wanted: Sequence[int]) -> list[Point]:
    """Neighbouring lengths, made of one passage with another word in front for each."""
    passage = session.passage(int(wanted[0] * 0.92) - 12)
    plain = session.ask(passage, max_tokens=1, label="length")
    base = prompt_length(session, plain)
    by_tokenizer = base is not None
    if base is None:
        base = session.send(plain).prompt_tokens
    points = []
    for number, length in enumerate(wanted):
        pads = Pads(max(0, length - (length if base is None else base)))
        if base is not None and by_tokenizer:
            pads = _fitted(session, passage, PADS[number], length, base)
        first = session.send(_ask(session, passage, PADS[number], pads, length))
        has = first.prompt_tokens
        if base is not None and not by_tokenizer and has is not None and has != length:
            pads = pads.towards(length, has, base)
            first = session.send(_ask(session, passage, PADS[number + len(wanted)], pads, length))
        repeat = session.send(first.ask)
        same = session.same(first, repeat, passage)
        warmth = judge.warmth(repeat.waited_s, repeat.prompt_tokens or length, session.calibration)
        points.append(Point(length, first, repeat, same, warmth))
    return points


def _fitted(session: Session, passage: Passage, pad: str, length: int, base: int) -> Pads:
    """What makes a prompt of `length` tokens, by the server's own tokenizer."""
    pads = Pads(max(0, length - base))
    for _ in range(FITTING_STEPS):
        has = prompt_length(session, _ask(session, passage, pad, pads, length))
        if has is None or has == length:
            break
        pads = pads.towards(length, has, base)
    return pads


def _ask(session: Session, passage: Passage, pad: str, pads: Pads, length: int) -> Ask:
    return session.ask(padded(passage, pad, pads.count, pads.single), label=f"{length} tokens")


GATE = LengthSweep()
