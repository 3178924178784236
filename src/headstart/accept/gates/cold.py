"""Cold: a text never seen before is read whole."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from headstart.accept.exchange import Exchange
from headstart.accept.fixtures import Tier
from headstart.accept.gates import Need
from headstart.accept.hits import joined, metered_reuse
from headstart.accept.judge import Timing
from headstart.accept.session import Session
from headstart.accept.verdict import Figure, Outcome, Verdict

FITTINGS = 3
"""How often a text is fitted again when the server counts it outside its tier."""


@dataclass(frozen=True)
class Cold:
    name: str = "cold"
    title: str = "cold"
    shows: str = (
        "Nothing is reused for a text that was never sent, and prompts are as long as they should be."
    )
    needs: frozenset[Need] = frozenset()

    def run(self, session: Session) -> list[Verdict]:
        return [self._tier(session, tier) for tier in session.tiers]

    def _tier(self, session: Session, tier: Tier) -> Verdict:
        done: list[Exchange] = []
        tries = FITTINGS
        while len(done) < session.options.samples:
            family = session.family()
            label = f"{tier.name}, first sight {len(done) + 1}"
            one = session.send(session.ask(family.at(tier), label=label), tier=tier)
            if one.ok and not fits(one, tier) and tries > 0:
                tries -= 1
                session.refit(tier, family.at(tier), one)
                continue
            session.found.families.setdefault(tier.name, []).append(family)
            session.found.cold.setdefault(tier.name, []).append(one)
            done.append(one)
            if not one.ok:
                break
        return verdict(done, tier, session.head_tokens)


def fits(done: Exchange, tier: Tier) -> bool:
    """Whether the server's count is within the tier; True where it does not count."""
    return done.prompt_tokens is None or tier.least <= done.prompt_tokens <= tier.most


def verdict(done: Sequence[Exchange], tier: Tier, head_tokens: int) -> Verdict:
    """From first-sight exchanges of as many families. `head_tokens`: what all prompts share."""
    timing = Timing(tuple(one.waited_s for one in done if one.ok))
    told = [metered_reuse(one) if one.reused is None else one.reused for one in done if one.ok]
    most = max((n for n in told if n is not None), default=None)
    count = next((one.prompt_tokens for one in done if one.prompt_tokens is not None), None)
    figures: dict[str, Figure] = {
        "prompt_tokens": count,
        "reused_tokens": most,
        "cold_s": timing.median_s,
        "spread_s": timing.spread_s,
    }
    failed = next((one.failure for one in done if one.failure is not None), None)
    outcome, reasons = Outcome.PASS, []
    if failed is not None:
        outcome, reasons = Outcome.FAIL, [f"the request failed: {failed.detail}"]
    elif most is not None and most > head_tokens:
        outcome = Outcome.FAIL
        reasons = [f"{most} tokens reused for a text that was never sent (at most {head_tokens} are shared)"]
    elif any(not fits(one, tier) for one in done):
        outcome = Outcome.INCONCLUSIVE
        reasons = [f"{count} tokens by the server's count, outside {tier.least} to {tier.most}"]
    elif None in told:
        outcome, reasons = Outcome.INCONCLUSIVE, ["the server does not say what it reused"]
    else:
        reasons = [f"{most} of {count} tokens reused", f"first token after {timing.median_s:.2f} s"]
    return Verdict("cold", outcome, joined(reasons), tier.name, "", figures, [one.case for one in done])


GATE = Cold()
