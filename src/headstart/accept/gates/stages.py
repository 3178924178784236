"""Where the waiting goes: reading the prompt against writing the reply."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from headstart.accept.exchange import Exchange
from headstart.accept.gates import Need
from headstart.accept.gates.evidence import restored
from headstart.accept.gates.trouble import trouble
from headstart.accept.judge import Calibration
from headstart.accept.session import Session
from headstart.accept.verdict import Figure, Outcome, Verdict

NAME = "stages"
REPLY_TOKENS = 300
"""Length of the reply that the shares are stated for: about a page of code or text."""


def verdict(
    tier: str, cold: Sequence[Exchange], warm: Sequence[Exchange], calibration: Calibration
) -> Verdict:
    """`cold`: first sights of one tier; `warm`: repeats, as far as there are any."""
    failed = trouble(NAME, [*cold, *warm], tier=tier)
    if failed is not None:
        return failed
    cases = [one.case for one in (*cold, *warm)]
    waits = [one.first_token_s for one in cold if one.first_token_s is not None]
    tokens = [one.prompt_tokens for one in cold if one.prompt_tokens]
    each_s = _decode_s(cold, warm, calibration)
    if not waits or not tokens or each_s is None:
        return Verdict(NAME, Outcome.INCONCLUSIVE, _missing(waits, tokens), tier=tier, cases=cases)
    cold_s, count = median(waits), median(tokens)
    writing_s = REPLY_TOKENS * each_s
    figures: dict[str, Figure] = {
        "prompt_tokens": int(count),
        "cold_s": cold_s,
        "to_first_word_tokens_per_s": _rate(count, cold_s),
        "decode_tokens_per_s": _rate(1, each_s),
        "reading_share_cold": _share(cold_s, writing_s),
    }
    reason = (
        f"{cold_s:.2f} s from Enter to the first word ({_rate(count, cold_s):,.0f} tokens/s), then "
        f"{_rate(1, each_s):,.0f} tokens/s; of a reply of {REPLY_TOKENS} tokens "
        f"{_share(cold_s, writing_s):.0%} of the waiting is reading"
    )
    resumed = [one for one in warm if one.first_token_s is not None and restored(one) != 0]
    if resumed:
        warm_s = median(one.first_token_s or 0.0 for one in resumed)
        figures |= {"warm_s": warm_s, "reading_share_warm": _share(warm_s, writing_s)}
        reason += f", {_share(warm_s, writing_s):.0%} when repeated ({warm_s:.2f} s)"
    return Verdict(NAME, Outcome.PASS, reason, tier=tier, figures=figures, cases=cases)


def _decode_s(cold: Sequence[Exchange], warm: Sequence[Exchange], calibration: Calibration) -> float | None:
    """Seconds a token of the reply, by the clock; None where it cannot be told."""
    found = [
        (one.total_s - one.first_token_s) / (one.completion_tokens - 1)
        for one in (*cold, *warm)
        if one.first_token_s is not None and one.completion_tokens is not None and one.completion_tokens > 1
    ]
    each_s = median(found) if found else calibration.decode_s_per_token
    return each_s if each_s > 0 else None


def _missing(waits: Sequence[float], tokens: Sequence[int]) -> str:
    if not waits:
        return "no reply was streamed, so reading and writing cannot be told apart"
    if not tokens:
        return "the server does not say how many tokens a prompt has"
    return "the server does not say how many tokens it wrote, so its speed of writing is unknown"


def _rate(tokens: float, took_s: float) -> float:
    return tokens / took_s if took_s > 0 else 0.0


def _share(part_s: float, rest_s: float) -> float:
    return part_s / (part_s + rest_s)


class Stages:
    name = NAME
    title = "stages of waiting"
    shows = "how much of the waiting is reading the prompt, and how much writing the reply"
    needs: frozenset[Need] = frozenset()

    def run(self, session: Session) -> list[Verdict]:
        verdicts = []
        for tier in session.tiers:
            session.first_sight(tier)
            cold = session.found.cold.get(tier.name, [])
            warm = session.found.warm.get(tier.name, [])
            verdicts.append(verdict(tier.name, cold, warm, session.calibration))
        return verdicts


GATE = Stages()
