"""Prompts as long as whole blocks, one token less and one more: is the repeat the same answer?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from headstart.accept import judge
from headstart.accept.exchange import Ask, Exchange
from headstart.accept.fixtures import Marker, Passage
from headstart.accept.gates import Need
from headstart.accept.gates.evidence import restored
from headstart.accept.gates.trouble import trouble
from headstart.accept.judge import Answer, Sameness, Warmth
from headstart.accept.session import Session
from headstart.accept.verdict import Outcome, Verdict

NAME = "length_sweep"
SIZES = (64, 128, 256, 512, 1024, 2048)
LEAST_TOKENS = 160
LARGEST_BLOCK = 8192
PADS = "abcdefgh"


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
    def shown(self) -> bool:
        return self.sameness.answer is Answer.SAME and self.resumed and self.repeat.prompt_tokens is not None


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
        "lengths_exact": sum(point.first.prompt_tokens == point.wanted for point in points),
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
    return f"only {shown} of {len(points)} lengths could be judged"


def _length(point: Point) -> int:
    return point.first.prompt_tokens or point.wanted


def padded(passage: Passage, pad: str, count: int) -> Passage:
    """The passage after `count` short words, which make it about `count` tokens longer."""
    head = f"{pad} " * count
    moved = tuple(Marker(one.name, one.value, one.at + len(head)) for one in passage.markers)
    return Passage(head + passage.text, moved, passage.tier)


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
    base = _count(session, session.ask(passage, max_tokens=1, label="length"))
    points = []
    for length, pad in zip(wanted, PADS, strict=False):
        ask = _ask_of_length(session, passage, pad, length, base)
        first = session.send(ask)
        repeat = session.send(ask)
        same = session.same(first, repeat)
        warmth = judge.warmth(repeat.waited_s, repeat.prompt_tokens or length, session.calibration)
        points.append(Point(length, first, repeat, same, warmth))
    return points


def _ask_of_length(session: Session, passage: Passage, pad: str, length: int, base: int | None) -> Ask:
    count = max(0, length - (base if base is not None else int(length * 0.92)))
    ask = session.ask(padded(passage, pad, count), label=f"{length} tokens")
    known = session.server.tokens(session.http, ask, session.wire.name, session.options.model)
    if known is None or len(known) == length:
        return ask
    count = max(0, count + length - len(known))
    return session.ask(padded(passage, pad, count), label=f"{length} tokens")


def _count(session: Session, ask: Ask) -> int | None:
    """Tokens of a prompt: by the server's tokenizer, else by sending it."""
    known = session.server.tokens(session.http, ask, session.wire.name, session.options.model)
    return len(known) if known is not None else session.send(ask).prompt_tokens


GATE = LengthSweep()
