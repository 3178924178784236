"""A finding of the clock, measured again before it counts against a server.

On a busy machine the same request takes twice or half as long a minute later. So a time stands for a
fault only where the suspicious pair is sent again with new texts, side by side, and every repeat says
the same by a wide margin.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from statistics import median

from headstart.accept.exchange import Exchange
from headstart.accept.fixtures import Tier
from headstart.accept.hits import Hit
from headstart.accept.judge import COLD_SHARE, Warmth
from headstart.accept.session import Session
from headstart.accept.verdict import Figure, Outcome

FACTOR = 3.0
"""How many times longer one of two requests must take."""
MARGIN_S = 0.1
"""And how much longer at least."""
SHORT_TOKENS = 128
LEAST_READING_S = 0.3

Pair = Callable[[], tuple[Exchange, Exchange]]
"""Sends a new text that is read from nothing, and what is suspected, which is about as long."""


@dataclass(frozen=True)
class Lap:
    """Three requests one right after another: a few tokens, a long text read from nothing, and the
    suspect."""

    short: Exchange
    cold: Exchange
    suspect: Exchange

    @property
    def warmth(self) -> Warmth:
        """Of the suspect. COLD: as slow as reading, and far slower than a few tokens; WARM: far quicker than
        reading; else UNCLEAR."""
        known = (self.short.first_token_s, self.cold.first_token_s, self.suspect.first_token_s)
        if None in known or not all(one.ok for one in (self.short, self.cold, self.suspect)):
            return Warmth.UNCLEAR
        short_s, cold_s, suspect_s = self.short.waited_s, self.cold.waited_s, self.suspect.waited_s
        if far_apart(suspect_s, cold_s):
            return Warmth.WARM
        slow = far_apart(short_s, suspect_s) and suspect_s >= COLD_SHARE * cold_s
        return Warmth.COLD if slow else Warmth.UNCLEAR

    @property
    def cases(self) -> tuple[str, str]:
        return self.cold.case, self.suspect.case


@dataclass(frozen=True)
class Doubt:
    """What came of measuring again. `agreed`: every lap said what was suspected."""

    laps: tuple[Lap, ...]
    agreed: bool

    @property
    def words(self) -> str:
        times = f"{self._median('suspect'):.3f} s beside {self._median('cold'):.3f} s for reading it all"
        few = f"{self._median('short'):.3f} s for a few tokens"
        again = f"measured {len(self.laps)} times more: {times} and {few}"
        return again if self.agreed else f"{again}; the clock disagrees with itself, so it decides nothing"

    @property
    def cases(self) -> list[str]:
        return [case for lap in self.laps for case in lap.cases]

    def figures(self) -> dict[str, Figure]:
        return {
            "measured_again": len(self.laps),
            "again_suspect_s": self._median("suspect"),
            "again_cold_s": self._median("cold"),
            "again_short_s": self._median("short"),
        }

    def _median(self, which: str) -> float:
        exchanges: list[Exchange] = [getattr(lap, which) for lap in self.laps]
        return median(one.waited_s for one in exchanges)


def far_apart(quick_s: float, slow_s: float) -> bool:
    """Whether two times differ by more than a busy machine makes them."""
    return slow_s >= FACTOR * quick_s and slow_s - quick_s > MARGIN_S


def measure_again(
    session: Session,
    suspected: Warmth,
    pair: Pair,
    states: Callable[[Exchange], bool] = lambda suspect: True,
) -> Doubt:
    """Laps until one disagrees, `samples` of them and two at least. `states`: whether the suspect's own
    words are still those the clock speaks against."""
    laps: list[Lap] = []
    times = max(2, session.options.samples)
    for number in range(1, times + 1):
        session.say(f"the clock speaks against the server: measuring again, {number} of {times}")
        short = session.send(session.ask(session.passage(SHORT_TOKENS), label="a few tokens"))
        laps.append(Lap(short, *pair()))
        if laps[-1].warmth is not suspected or not states(laps[-1].suspect):
            return Doubt(tuple(laps), agreed=False)
    return Doubt(tuple(laps), agreed=True)


def repeat_of(session: Session, tier: Tier) -> Pair:
    """A new text, and the same again."""

    def pair() -> tuple[Exchange, Exchange]:
        ask = session.ask(session.fresh(tier), label=f"{tier.name}, timed")
        cold = session.send(ask, tier=tier)
        return cold, session.send(replace(ask, label=f"{tier.name}, timed again"), tier=tier)

    return pair


def timed_tier(session: Session) -> Tier:
    """The smallest tier that takes long enough to read for the clock to tell; else the largest."""
    each_s = session.calibration.read_s_per_token
    long = [tier for tier in session.tiers if each_s * tier.least >= LEAST_READING_S]
    return long[0] if long else session.tiers[-1]


def confirmed(session: Session, hits: Sequence[Hit], pair: Pair) -> tuple[list[Hit], list[str]]:
    """`hits` with those that fail by the clock alone measured again, once for all of them: they stay
    where the laps agree, and say nothing where they do not. Also the cases of the laps."""
    if not any(_by_clock(hit) for hit in hits):
        return list(hits), []
    doubt = measure_again(session, Warmth.COLD, pair)
    outcome = Outcome.FAIL if doubt.agreed else Outcome.INCONCLUSIVE
    judged = [
        replace(hit, outcome=outcome, words=f"{hit.words}; {doubt.words}") if _by_clock(hit) else hit
        for hit in hits
    ]
    return judged, doubt.cases


def _by_clock(hit: Hit) -> bool:
    return hit.by == "clock" and hit.outcome is Outcome.FAIL
