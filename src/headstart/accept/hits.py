"""Was a prefix resumed as far as it could be: the three truths about one exchange. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from headstart.accept.exchange import Exchange
from headstart.accept.judge import Calibration, Reach, Warmth, beyond, gap, read_by_clock, warmth
from headstart.accept.verdict import Figure, Outcome


@dataclass(frozen=True)
class Hit:
    """`words`: a clause for the reason. `by`: "reply", "metrics", "clock" or "nothing". `reused`, `gap`:
    tokens, None where only the clock speaks."""

    outcome: Outcome
    words: str
    by: str
    reused: int | None = None
    gap: int | None = None

    def figures(self, name: str = "") -> dict[str, Figure]:
        """For a verdict; `name` is put in front of the keys."""
        lead = f"{name}_" if name else ""
        return {f"{lead}reused_tokens": self.reused, f"{lead}gap_tokens": self.gap}


def metered_reuse(done: Exchange) -> int | None:
    """Reused tokens by the server's counters, None where they do not tell."""
    if done.counters is None:
        return None
    if done.counters.reused_tokens is not None:
        return round(done.counters.reused_tokens)
    if done.counters.read_tokens is not None and done.prompt_tokens is not None:
        return done.prompt_tokens - round(done.counters.read_tokens)
    return None


def judge_hit(done: Exchange, divergence: Reach, allowance: int, calibration: Calibration) -> Hit:
    """Whether `done` resumed at `divergence`, up to `allowance` tokens before it and none past it."""
    if done.failure is not None:
        return Hit(Outcome.FAIL, f"the request failed: {done.failure.detail}", "nothing")
    reused, by = done.reused, "reply"
    if reused is None:
        reused, by = metered_reuse(done), "metrics"
    if reused is None:
        return _by_clock(done, divergence, calibration)
    lost, over = gap(divergence, reused), beyond(divergence, reused)
    where = _where(divergence)
    if over:
        words = f"claims {over} tokens past the point where the prompts part ({where})"
        return Hit(Outcome.FAIL, words, by, reused, lost)
    if lost is not None and lost > allowance:
        words = f"reused {reused} of {where}, a gap of {lost} tokens"
        return Hit(Outcome.FAIL, words, by, reused, lost)
    return Hit(Outcome.PASS, f"reused {reused} of {where}", by, reused, lost)


def _where(divergence: Reach) -> str:
    return f"{divergence.low}" if divergence.exact else f"{divergence.low} to {divergence.high}"


def _by_clock(done: Exchange, divergence: Reach, calibration: Calibration) -> Hit:
    """Only the first token's time speaks: it must fit reading what comes after the divergence."""
    whole = done.prompt_tokens or divergence.high
    shared = divergence.low / whole if whole else 0.0
    if done.first_token_s is None or shared < 0.5:
        return Hit(Outcome.INCONCLUSIVE, "the server does not say what it reused", "nothing")
    clock = warmth(done.first_token_s, whole, calibration)
    read = round(min(whole, read_by_clock(done.first_token_s, calibration)))
    words = f"the server does not say what it reused; its first token took as long as reading {read} tokens"
    outcome = {Warmth.WARM: Outcome.PASS, Warmth.COLD: Outcome.FAIL, Warmth.UNCLEAR: Outcome.INCONCLUSIVE}
    return Hit(outcome[clock], words, "clock")


def joined(reasons: Sequence[str]) -> str:
    """Several clauses as one line, repeats left out."""
    return "; ".join(dict.fromkeys(reason for reason in reasons if reason))
